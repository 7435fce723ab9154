"""Ask the broker about queues, rights and consumers, by AMQP and by the management API. Creates nothing."""
