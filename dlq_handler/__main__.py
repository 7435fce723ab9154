"""`python -m dlq_handler` is `dlq-handler`."""

from dlq_handler.main import main

main()
