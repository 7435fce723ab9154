"""All of AMQP and the management API. No object of the AMQP libraries leaves this folder."""
