"""The top of the first page: the worst diagnosis in its own words, who is fine, what else is wrong."""

from typing import Any

import pytest

from dlq_handler.dashboard.headline import Headline, headline
from dlq_handler.dashboard.strip import Cell, strip
from dlq_handler.dashboard.words import State
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.view import BrokerFact, DatabaseFact, LettersFact, OutboxFact, Unknown, View
from dlq_handler.host.worker import QueueObservation
from dlq_handler.workers.service_observation import ServiceObservation, ServiceObservations
from tests.support.views import NOW, a_brake, a_queue, a_view, a_worker, ago

GONE = a_worker(
    silent_seconds=1930,
    queue=QueueObservation(consumers=0, ready=24, unacked=0),
    ended_last_hour=611,
    scheduled=24,
)


def headline_of(**changed: Any) -> Headline:
    return headline(diagnose(a_view(**changed)), now=NOW, link=lambda page: f"https://docs.example/{page}")


def cells(view: View) -> dict[str, Cell]:
    return {cell.component: cell for cell in strip(view, diagnose(view))}


def test_the_title_is_the_sentence_of_the_worst_diagnosis() -> None:
    top = headline_of(workers=[GONE, a_worker(name="worker-shell", number=8)])
    [worst, *_] = diagnose(a_view(workers=[GONE, a_worker(name="worker-shell", number=8)]))
    assert top.title == "worker-python (7) is unavailable since 02:32:50 UTC."
    assert top.state is State.BAD
    assert top.worst is not None
    assert top.worst.title == f"Workers: {worst.explanation}", "the details stand below"
    assert top.worst.next_step == worst.action
    assert top.worst.runbook_link == f"https://docs.example/{worst.runbook}"


def test_only_components_that_are_ok_are_named_as_ok() -> None:
    top = headline_of(workers=[GONE])
    assert top.fine == "Broker, database, executor, senders and this replica are fine."


def test_a_name_keeps_its_first_letter() -> None:
    assert headline_of(workers=[GONE]).shown_evidence[0].startswith("worker-python (7)")


def test_all_is_well_only_when_all_was_looked_at() -> None:
    assert headline_of().title == "All is well."
    assert headline_of().state is State.OK
    assert headline_of(broker=Unknown("not observed yet")).state is not State.OK


def test_before_the_first_view_the_state_is_unknown() -> None:
    nothing = headline((), now=NOW, link=lambda page: page)
    assert nothing.state is State.UNKNOWN
    assert nothing.title.startswith("Unknown")


def test_further_problems_and_doubts_are_kept_apart() -> None:
    top = headline_of(
        workers=[GONE, a_worker(number=8)],
        letters=LettersFact(span_seconds=900, unreadable=2, unrelated=0, before=0),
        alarms=Unknown("no"),
    )
    assert [one.kind for one in top.problems] == ["unusable letters"]
    assert top.problems[0].state is State.WARN
    assert [one.kind for one in top.unknowns] == ["broker alarm"]


@pytest.mark.parametrize(("unreadable", "unrelated", "outcome"), [(2, 0, "unreadable"), (1, 9, "unrelated")])
def test_of_unusable_letters_the_page_shows_those_that_the_command_lists(
    unreadable: int, unrelated: int, outcome: str
) -> None:
    top = headline_of(
        letters=LettersFact(span_seconds=900, unreadable=unreadable, unrelated=unrelated, before=0)
    )
    assert top.worst is not None
    assert top.worst.page == (f"/letters?outcome={outcome}", f"{outcome.capitalize()} letters")
    assert top.worst.command.endswith(outcome)


def test_the_strip_has_five_cells_each_with_a_sign_a_word_and_one_number() -> None:
    view = a_view()
    shown = [
        (cell.component, cell.state.sign, cell.word, cell.number) for cell in strip(view, diagnose(view))
    ]
    assert shown == [
        ("dlq-handler", "✓", "working", "1 replica"),
        ("Broker", "✓", "connected", "canary 0.9 s"),
        ("Database", "✓", "connected", "2 ms"),
        ("Workers", "✓", "2 of 2 available", None),
        ("Publishing", "✓", "working", "0 waiting"),
    ]


def test_without_the_database_the_broker_is_shown_as_it_answers() -> None:
    away = Unknown("the database does not answer")
    lost: dict[str, Any] = {
        "database": DatabaseFact(is_unreachable=True, error="refused"),
        "canaries": away,
        "workers": away,
    }
    broker = cells(a_view(**lost))["Broker"]
    assert (broker.state, broker.word, broker.number) == (State.OK, "connected", "canary ?")
    for unknown in ({"broker": away}, {"alarms": Unknown("it does not say")}):
        assert cells(a_view(**lost, **unknown))["Broker"].word == "unknown"
    assert cells(a_view(**lost, broker=BrokerFact(error="refused")))["Broker"].word == "unreachable"
    assert cells(a_view(canaries=Unknown("so")))["Broker"].state is State.UNKNOWN, "the database is there"


def test_the_strip_counts_unavailable_workers() -> None:
    cell = cells(a_view(workers=[GONE, a_worker(name="worker-shell", number=8)]))["Workers"]
    assert (cell.state, cell.word) == (State.BAD, "1 of 2 unavailable")
    alone = cells(a_view(workers=[GONE]))["Workers"]
    assert (alone.state, alone.word, alone.number) == (State.BAD, "1 of 1 unavailable", None)


def test_while_the_brake_holds_it_leads_and_no_replica_is_counted_away() -> None:
    braked = {
        "brake": a_brake(tripped_at=NOW, tripped_by="one", explanation="many"),
        "intake": a_queue("attune.dlx.queue", count=0, ready=41, tags=()),
    }
    cell = cells(a_view(**braked))["dlq-handler"]

    assert (cell.state, cell.word, cell.number) == (State.BAD, "brake tripped", None)
    assert headline_of(**braked).title == "The brake (circuit breaker) is tripped since 03:00:00 UTC."


def test_what_is_unknown_is_neither_zero_nor_green() -> None:
    shown = cells(
        a_view(
            broker=Unknown("away"),
            database=DatabaseFact(is_unreachable=True, error="connection refused"),
            outbox=Unknown("away"),
            intake=Unknown("away"),
            workers=Unknown("away"),
            canaries=Unknown("away"),
        )
    )
    assert shown["Database"].state is State.BAD
    assert {shown[component].state for component in ("Broker", "Workers", "Publishing", "dlq-handler")} == {
        State.UNKNOWN
    }
    assert {cell.number for cell in shown.values()} == {None}


def test_without_the_broker_publishing_is_paused_and_heartbeats_still_count() -> None:
    """OS6 of the operating review."""
    shown = cells(a_view(broker=BrokerFact(error="connection refused"), intake=Unknown("broker")))
    assert (shown["Publishing"].state, shown["Publishing"].word) == (State.BAD, "paused")
    assert (shown["Workers"].state, shown["Workers"].word) == (State.OK, "2 of 2 available")


def test_a_broker_that_is_away_is_a_cross() -> None:
    cell = cells(a_view(broker=BrokerFact(error="connection refused")))["Broker"]
    assert (cell.state.sign, cell.word) == ("✕", "unreachable")


def test_a_sidecar_without_its_database_is_paused_not_absent() -> None:
    idle = a_queue("attune.dlx.queue", count=0, ready=41, tags=())
    assert cells(a_view(intake=idle))["dlq-handler"].word == "not consuming"
    assert (
        cells(a_view(intake=idle, database=DatabaseFact(is_unreachable=True, error="refused")))[
            "dlq-handler"
        ].word
        == "paused"
    )


def test_completion_events_that_wait_too_long_are_shown() -> None:
    cell = cells(a_view(outbox=OutboxFact(pending=12_431, oldest_seconds=300)))["Publishing"]
    assert (cell.state, cell.word, cell.number) == (State.BAD, "stuck", "12,431 waiting")


def test_of_the_past_there_are_states_and_no_numbers() -> None:
    past = strip(None, diagnose(a_view()))
    assert {cell.state for cell in past} == {State.OK}
    assert {cell.number for cell in past} == {None}
    assert {cell.state for cell in strip(None, ())} == {State.UNKNOWN}


def test_services_to_restart_have_their_own_headline() -> None:
    look = ServiceObservation(
        queue="worker.7.executions",
        unconsumed_since=ago(6890),
        consumed_at=ago(6905),
        restarted_at=ago(6900),
        first_heartbeat=ago(6880),
    )
    worker = a_worker(queue=QueueObservation(consumers=0, ready=0), observation=look)
    done = ServiceObservation(
        queue="done", unconsumed_since=ago(6890), consumed_at=ago(6905), restarted_at=ago(6900)
    )
    executor = {
        "completions": a_queue("done", count=0),
        "service_observations": ServiceObservations(observed_at=NOW, by_queue={"done": done}),
    }
    alone, both = headline_of(workers=[worker]), headline_of(workers=[worker], **executor)

    assert alone.title == "worker-python (7) reports without consuming since 01:05:00 UTC."
    assert alone.worst is not None
    assert alone.worst.title == (
        "Workers: The broker restarted at 01:05 UTC. Since then worker-python (7) reports without consuming."
    )
    assert alone.worst.page == ("/workers", "Workers")
    assert both.title == "The executor and worker-python (7) do not consume since 01:05:00 UTC."
    assert both.worst is not None
    assert both.worst.title.startswith(
        "Executor: The broker restarted at 01:05 UTC. Since then the executor's queue"
    )
    assert both.worst.next_step == "Restart the executor and this worker."
    for view in (a_view(workers=[worker]), a_view(workers=[worker], **executor)):
        assert (cells(view)["Workers"].state, cells(view)["Workers"].word) == (State.BAD, "restart needed")
    assert cells(a_view(**executor))["Workers"].state is State.OK, "it is the executor's"
