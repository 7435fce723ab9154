"""Where the programs of servers and of a browser are: on this machine, else unpacked from Debian's packages.

Standard library only: `python -m dlq_handler.sandbox.server_programs` fetches them while .venv is still being made.
"""
