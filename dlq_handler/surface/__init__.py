"""What people and machines see of the sidecar: command line, health and metrics over HTTP."""
