"""What keeps dlq-handler from making an outage worse: the brake (circuit breaker) and the safety gate."""
