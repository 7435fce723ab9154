"""Open and use AMQP connections. The only folder that relies on internals of aio-pika, aiormq and pamqp."""
