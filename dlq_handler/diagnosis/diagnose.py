"""Diagnose a view: one diagnosis for each check, the worst first. Pure.

An unknown fact gives an unknown diagnosis, never ok. A check of a part that is switched off is left out.
"""

from dlq_handler.diagnosis import (
    check_attune,
    check_flows,
    check_queues,
    check_replica,
    check_servers,
    check_services,
    check_workers,
)
from dlq_handler.diagnosis.check_doctor import examine
from dlq_handler.diagnosis.checks import Check
from dlq_handler.diagnosis.diagnosis import Diagnosis, Health, in_order
from dlq_handler.diagnosis.doctor_facts import DoctorFacts
from dlq_handler.diagnosis.view import View

_CHECKS = (
    check_servers.database,
    check_servers.tables,
    check_servers.rights,
    check_servers.broker,
    check_servers.alarms,
    check_servers.topology,
    check_servers.canary,
    check_queues.other_consumers,
    check_queues.system_queues,
    check_queues.completions,
    check_queues.requests,
    check_replica.replicas,
    check_replica.gate,
    check_replica.brake,
    check_replica.shadow_mode,
    check_replica.timeout_monitor,
    check_replica.publishing,
    check_services.services,
    check_workers.workers,
    check_workers.unavailable,
    check_workers.hung,
    check_workers.queue,
    check_workers.backlog,
    check_flows.returned_workers,
    check_flows.stops,
    check_flows.leaked_queues,
    check_flows.orphans,
    check_attune.unusable_letters,
    check_attune.attune_monitor,
)


def diagnose(view: View) -> tuple[Diagnosis, ...]:
    answers = (check(view) for check in _CHECKS)
    return in_order(answer for answer in answers if answer is not None)


def diagnose_for_doctor(view: View, facts: DoctorFacts) -> tuple[Diagnosis, ...]:
    """The view's diagnoses and those of `doctor` alone. A check that both make is answered by the newer one.

    Shadow mode is left out: all parts can be in order meanwhile, and `doctor` reports it apart. Beside a replica in
    live mode it stays: the other answers are not about that replica.
    """
    found = {one.check: one for one in (*diagnose(view), *examine(view, facts))}
    if found[Check.SHADOW_MODE].health is Health.PROBLEM and view.live_replica is None:
        del found[Check.SHADOW_MODE]
    return in_order(found.values())
