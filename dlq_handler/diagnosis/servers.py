"""Diagnose the database, the broker, and who takes what from the queues that everything goes through. Pure."""

from dataclasses import replace

from dlq_handler.diagnosis import doctor_broker_lines, doctor_database_lines, doctor_lines
from dlq_handler.diagnosis.diagnosis import Diagnosis, diagnosed
from dlq_handler.diagnosis.observation import Health, Looked, Observation
from dlq_handler.diagnosis.view import OFF, BrokerSeen, QueueSeen, Unknown, View
from dlq_handler.timeouts.decide_unscheduled import REPUBLISHING_IS_OFF
from dlq_handler.topology.decide_canary import CanaryState


def unknown(looked: Looked, fact: Unknown) -> Diagnosis:
    return diagnosed(looked.unknown(fact.explanation, doctor_lines.REPAIR_FIRST))


def database(view: View) -> Diagnosis:
    seen = view.database
    if isinstance(seen, Unknown):
        return unknown(doctor_database_lines.DATABASE, seen)
    said = doctor_database_lines.database(
        seen.trouble, is_in_recovery=seen.is_in_recovery, answer_seconds=seen.answer_seconds
    )
    evidence = () if seen.trouble else (f"answered within {seen.answer_seconds:.3f} s",)
    return diagnosed(said, since=seen.since, evidence=evidence)


def tables(view: View) -> Diagnosis:
    seen = view.tables
    if isinstance(seen, Unknown):
        return unknown(doctor_database_lines.OWN_TABLES, seen)
    return diagnosed(doctor_database_lines.own_tables(seen))


def rights(view: View) -> Diagnosis:
    seen = view.rights
    if isinstance(seen, Unknown):
        return unknown(doctor_database_lines.DATABASE_RIGHTS, seen)
    return diagnosed(
        doctor_database_lines.database_rights(seen.missing, role=seen.role),
        evidence=seen.missing,
        command=f"dlq-handler grants --role {seen.role}",
    )


def broker(view: View) -> Diagnosis:
    seen = view.broker
    if isinstance(seen, Unknown):
        return unknown(doctor_broker_lines.BROKER, seen)
    return diagnosed(doctor_broker_lines.broker(seen.trouble), since=seen.since)


def alarms(view: View) -> Diagnosis:
    seen = view.alarms
    if (isinstance(seen, Unknown) or not seen) and view.own and view.own.link.is_blocked:
        # The broker said so on our own connection; the management API may be out of reach, or seconds behind.
        return diagnosed(doctor_broker_lines.broker_alarms(("our connection is blocked",)))
    if isinstance(seen, Unknown):
        is_broker_there = isinstance(view.broker, BrokerSeen) and not view.broker.trouble
        fix = doctor_lines.MANAGEMENT_FIX if is_broker_there else doctor_lines.REPAIR_FIRST
        return diagnosed(doctor_broker_lines.ALARMS.unknown(seen.explanation, fix))
    return diagnosed(doctor_broker_lines.broker_alarms(seen), evidence=seen)


def topology(view: View) -> Diagnosis:
    seen = view.topology
    if isinstance(seen, Unknown):
        return unknown(doctor_broker_lines.TOPOLOGY, seen)
    return diagnosed(doctor_broker_lines.topology(seen.checked, seen.limits))


def canary(view: View) -> Diagnosis | None:
    seen = view.canaries
    if seen == OFF:
        return None
    if isinstance(seen, Unknown):
        return diagnosed(doctor_lines.canary((), seen.explanation))
    lost = [one for one in seen if one.state is CanaryState.LOST]
    return diagnosed(
        doctor_lines.canary(seen),
        evidence=[f"worker {one.worker_id}: {one.explanation}" for one in lost],
    )


def other_consumers(view: View) -> Diagnosis | None:
    seen = view.intake
    if seen == OFF:
        return None
    if isinstance(seen, Unknown):
        return unknown(doctor_broker_lines.OTHER_CONSUMERS, seen)
    return diagnosed(
        doctor_broker_lines.other_consumers(seen.taken, queue=seen.name, own_prefix=view.own_prefix)
    )


def completions(view: View) -> Diagnosis:
    return _host_queue(doctor_broker_lines.COMPLETIONS, view.completions)


def requests(view: View) -> Diagnosis:
    said, stuck = _host_queue(doctor_broker_lines.REQUESTS, view.requests), view.at_request_limit
    if not view.republishes_requests:
        said = replace(said, evidence=(*said.evidence, REPUBLISHING_IS_OFF))
    if said.health is not Health.OK or isinstance(stuck, Unknown) or stuck == 0:
        return said
    if not view.republishes_requests:
        return diagnosed(
            doctor_broker_lines.REQUESTS.problem(
                f"{stuck} execution{' was' if stuck == 1 else 's were'} not scheduled in time; {REPUBLISHING_IS_OFF}",
                "run the executions again or cancel them in Attune, or set that setting to true",
                headline="Executions are requested and not scheduled",
            )
        )
    them = "it" if stuck == 1 else "them"
    return diagnosed(
        doctor_broker_lines.REQUESTS.problem(
            f"{stuck} execution{' was' if stuck == 1 else 's were'} requested again as often as "
            "dlq_handler.monitor.republish_limit allows and never scheduled; "
            f"dlq-handler does not request {them} again",
            "start workers that can run their actions, then raise that limit or run the executions again",
            headline="Executions are requested again and never scheduled",
        )
    )


def _host_queue(looked: Looked, seen: QueueSeen | Unknown) -> Diagnosis:
    if isinstance(seen, Unknown):
        return unknown(looked, seen)
    said: Observation = doctor_broker_lines.host_queue(looked, seen.taken, queue=seen.name)
    return diagnosed(said)
