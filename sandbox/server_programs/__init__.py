"""Where the programs of the servers are: on this machine, else unpacked from Debian's packages.

Standard library only: `python -m sandbox.server_programs` fetches them while .venv is still being made.
"""
