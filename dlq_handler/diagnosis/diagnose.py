"""Diagnose: whose fault, since when, how much, what next. Pure: a view in, diagnoses out, the worst first.

Promises: one diagnosis for each kind, whatever is known; what nobody knows is "unknown", never ok. What is switched
off is left out. Never: decides what the doctor decides already; those words are taken from there.
"""

from dlq_handler.diagnosis import fleet, senders, servers, services, workers
from dlq_handler.diagnosis import own as us
from dlq_handler.diagnosis.attunes_monitor import attunes_monitor
from dlq_handler.diagnosis.diagnosis import Diagnosis, in_order
from dlq_handler.diagnosis.view import View

_QUESTIONS = (
    servers.database,
    servers.tables,
    servers.rights,
    servers.broker,
    servers.alarms,
    servers.topology,
    servers.canary,
    servers.other_consumers,
    servers.completions,
    servers.requests,
    us.sidecar,
    us.gate,
    us.brake,
    us.shadow,
    us.monitor,
    us.announcing,
    services.services,
    fleet.registered,
    workers.gone,
    workers.hung,
    workers.queue,
    workers.backlog,
    senders.unusable_letters,
    attunes_monitor,
)


def diagnose(view: View) -> tuple[Diagnosis, ...]:
    answers = (question(view) for question in _QUESTIONS)
    return in_order(answer for answer in answers if answer is not None)
