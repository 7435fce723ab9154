"""RabbitMQ and PostgreSQL for tests, demo and benchmarks: found or started separately, ended with this process.

`find_rabbitmq` and `find_postgresql` take what there is; `PrivateRabbitMQ.launch()` and
`PrivatePostgreSQL.launch()` start one of our own that may be stopped, killed and started again;
`PrivateServers.launch()` starts both at once.
"""

from sandbox.servers.errors import NoServer, NotPrivate
from sandbox.servers.find import find_postgresql, find_rabbitmq
from sandbox.servers.pair import PrivateServers, Servers
from sandbox.servers.postgresql import PostgreSQL
from sandbox.servers.private_postgresql import PrivatePostgreSQL
from sandbox.servers.private_rabbitmq import PrivateRabbitMQ
from sandbox.servers.rabbitmq import RabbitMQ

__all__ = [
    "NoServer",
    "NotPrivate",
    "PostgreSQL",
    "PrivatePostgreSQL",
    "PrivateRabbitMQ",
    "PrivateServers",
    "RabbitMQ",
    "Servers",
    "find_postgresql",
    "find_rabbitmq",
]
