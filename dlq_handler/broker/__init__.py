"""Everything that speaks AMQP or the management API. No aio_pika object leaves this folder."""
