"""The HTTP API, /api/v1: the same facts and acts as the dashboard and the command line, for programs."""
