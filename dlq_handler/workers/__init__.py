"""The workers of the host: availability, queues, connections."""
