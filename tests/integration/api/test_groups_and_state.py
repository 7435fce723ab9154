"""Groups, how things stand, who is there, and what was: the same facts as everywhere else, as JSON."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from dlq_handler.database.engine import Database
from dlq_handler.dead_letters import groups_sql
from dlq_handler.dead_letters.decision import Outcome
from dlq_handler.diagnosis import diagnoses_sql
from dlq_handler.diagnosis.view import GateFact, Unknown
from dlq_handler.explain.explain import Explanation
from dlq_handler.explain.records import Records, Waiting
from dlq_handler.explain.story import Kind, Moment
from dlq_handler.history import events_sql, history_sql
from dlq_handler.host.story_sql import ExecutionFacts
from dlq_handler.host.worker import QueueObservation
from dlq_handler.operations import audit_sql
from dlq_handler.operations.operation import Action, Actor, Client
from dlq_handler.safety import brake_sql
from dlq_handler.safety.brake import BrakeState
from dlq_handler.safety.gate import GateCause
from dlq_handler.web.options import UiOptions
from tests.support.builders import a_dead_letter
from tests.support.eventually import eventually
from tests.support.ui import a_ui_world, asking, put_on_record
from tests.support.views import a_view, a_worker


async def test_groups_are_counted_over_a_window_and_over_their_life(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    await put_on_record(ui_store, a_dead_letter(key="a"), a_dead_letter(key="b"))
    await put_on_record(ui_store, a_dead_letter(key="c"), outcome=Outcome.UNKNOWN_EXECUTION)
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    listed = (await api.get("groups", params={"until": soon})).json()
    assert listed["total"] == 2
    assert [
        (one["letters"], one["failed_by_letter"], one["group"]["category"]) for one in listed["groups"]
    ] == [
        (2, 2, "not_taken"),
        (1, 0, "unknown_execution"),
    ]
    assert len((await api.get("groups", params={"limit": "1"})).json()["groups"]) == 1
    long_ago = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    assert (await api.get("groups", params={"until": long_ago})).json()["total"] == 0

    settled, kept = (one["group"]["id"] for one in listed["groups"])
    assert (await api.get(f"groups/{kept}")).json()["reprocessable"] == 1
    assert (await api.get(f"groups/{settled}")).json()["reprocessable"] == 0
    assert (await api.get("groups/0123456789")).status_code == 404
    assert (await api.get("groups/x")).status_code == 422


async def test_a_group_that_retention_deleted_is_no_record_until_it_comes_again(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    await put_on_record(ui_store, a_dead_letter(key="a"))
    [one] = (await api.get("groups")).json()["groups"]
    await groups_sql.delete_groups(ui_store, older_than_seconds=-1)
    missing = await api.get(f"groups/{one['group']['id']}")
    assert missing.status_code == 404
    assert missing.json()["error"]["detail"] == (
        "No such record. Records are kept for 31 d; it may have been deleted."
    )
    await put_on_record(ui_store, a_dead_letter(key="b"))
    assert (await api.get(f"groups/{one['group']['id']}")).status_code == 200


async def test_a_window_ends_after_it_begins(api: httpx.AsyncClient) -> None:
    refused = await api.get("groups?since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z")
    assert refused.status_code == 422
    kept = (await api.get("chart?since=2020-01-01T00:00:00Z")).json()
    since, until = (datetime.fromisoformat(kept[name]) for name in ("since", "until"))
    assert until - since == timedelta(days=7), "no further back than what is kept"


async def test_the_diagnosis_is_the_one_of_the_last_look(ui_store: Database) -> None:
    queue = QueueObservation(consumers=0, ready=3, unacked=0)
    gone = a_view(workers=(a_worker(silent_seconds=1920, scheduled=3, queue=queue), a_worker(number=8)))
    world = await a_ui_world(
        ui_store, view=gone, options=UiOptions(runbook_url="https://docs.example/runbook.md")
    )
    async with asking(world) as client:
        answered = (await client.get("/api/v1/diagnosis")).json()
    assert answered["conclusion"] == "problem"
    worst = answered["diagnoses"][0]
    assert (worst["component"], worst["check"]) == ("workers", "worker unavailable")
    assert "worker-python (7)" in worst["explanation"]
    assert worst["runbook_url"] == "https://docs.example/runbook.md#worker-unavailable"


async def test_before_the_first_view_the_diagnosis_is_unknown(ui_store: Database) -> None:
    async with asking(await a_ui_world(ui_store, has_looked=False)) as client:
        answered = (await client.get("/api/v1/diagnosis")).json()
        assert (answered["conclusion"], answered["diagnoses"]) == ("unknown", [])
        assert (await client.get("/api/v1/gate")).json()["is_open"] is None
        assert (await client.get("/api/v1/workers")).status_code == 503
        assert (await client.get("/api/v1/topology")).status_code == 503


async def test_a_past_diagnosis_is_shown_later(api: httpx.AsyncClient, ui_store: Database) -> None:
    ill = (await a_ui_world(ui_store, view=a_view(workers=()))).diagnoser.latest
    assert ill
    night = datetime.now(UTC) - timedelta(hours=5)
    async with ui_store.transaction() as tx:
        await diagnoses_sql.record_change(tx, ill.diagnoses, at=night)
    answered = (await api.get("diagnosis", params={"at": (night + timedelta(hours=1)).isoformat()})).json()
    assert datetime.fromisoformat(answered["at"]) == night
    assert answered["diagnoses"][0]["explanation"] == ill.diagnoses[0].explanation
    before = await api.get("diagnosis", params={"at": (night - timedelta(hours=1)).isoformat()})
    assert before.status_code == 404


async def test_brake_gate_and_shadow_are_shown_as_they_are(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    before = (await api.get("brake")).json()
    assert (before["mode"], before["max_decisions_per_minute"]) == ("normal", 500)
    async with ui_store.transaction() as tx:
        await brake_sql.trip(tx, by="sidecar-1", explanation="too many", hold_seconds=0)
    tripped = (await api.get("brake")).json()
    assert (tripped["mode"], tripped["tripped_by"], tripped["explanation"]) == (
        "holding",
        "sidecar-1",
        "too many",
    )
    assert tripped["version"] != before["version"]
    assert (await api.get("gate")).json() == {
        "is_open": True,
        "causes": [],
        "explanation": None,
        "replica": "test",
    }
    assert (await api.get("shadow")).json() == {"is_shadow": False}

    sick = a_view(gate=GateFact(causes=[GateCause.RECOVERY], explanation="a standby"))
    async with asking(await a_ui_world(ui_store, view=sick, is_shadow=True)) as client:
        gate = (await client.get("/api/v1/gate")).json()
        assert (gate["is_open"], gate["causes"], gate["explanation"]) == (False, ["recovery"], "a standby")
        assert (await client.get("/api/v1/shadow")).json() == {"is_shadow": True}


async def test_workers_and_topology_are_as_they_were_seen(ui_store: Database) -> None:
    view = a_view(workers=(a_worker(), a_worker(name="gaps", number=9, queue=Unknown("no rights"))))
    async with asking(await a_ui_world(ui_store, view=view)) as client:
        seen, gaps = (await client.get("/api/v1/workers")).json()["workers"]
        assert (seen["name"], seen["availability"], seen["consumers"]) == ("worker-python", "available", 1)
        assert seen["canary"]["took_seconds"] == 0.9
        assert (gaps["consumers"], gaps["queue_error"], gaps["canary"]) == (None, "no rights", None)
        assert (await client.get("/api/v1/workers/9")).json() == gaps
        assert (await client.get("/api/v1/workers/10")).status_code == 404
        topology = (await client.get("/api/v1/topology")).json()
        assert (topology["conclusion"], topology["intake_queue"]) == ("fine", "attune.dlx.queue")
        assert {"worker.7.executions"} <= {one["queue"] for one in topology["queues"]}


async def test_an_execution_is_explained(ui_store: Database) -> None:
    now = datetime.now(UTC)
    facts = ExecutionFacts(
        id=7, status="scheduled", is_terminal=False, action_ref="a", created=now, updated=now
    )
    moment = Moment(at=now, kind=Kind.CREATED, text="created", evidence={"queue": "q"})
    answered = Explanation(
        records=Records(execution=facts, now=now),
        moments=[moment],
        waiting=Waiting(explanation="it waits for its worker"),
    )

    async def explain(execution_id: int) -> Explanation | None:
        return answered if execution_id == 7 else None

    async with asking(await a_ui_world(ui_store, explain=explain)) as client:
        story = (await client.get("/api/v1/executions/7")).json()
        assert story["execution"]["status"] == "scheduled"
        assert story["moments"][0]["evidence"] == {"queue": "q"}
        assert story["waiting"]["explanation"] == "it waits for its worker"
        assert (await client.get("/api/v1/executions/8")).status_code == 404


async def test_the_chart_has_letters_timelines_markers_and_gaps_time(
    api: httpx.AsyncClient, ui_store: Database
) -> None:
    await put_on_record(ui_store, a_dead_letter(key="a"), a_dead_letter(key="b"))
    view = (await a_ui_world(ui_store)).diagnoser.latest
    assert view
    async with ui_store.transaction() as tx:
        await events_sql.record_event(tx, topic="brake", kind="brake.tripped", subject="x", replica="test")
        await tx.run(
            "INSERT INTO own.observed_minute VALUES ('letters', date_trunc('minute', now()) - interval '9 min')"
        )
    await history_sql.record_workers(ui_store, {7: ("worker-python", a_worker().standing.availability)})
    shown: dict[str, Any] = {}

    async def has_markers() -> bool:
        shown.update((await api.get("chart")).json())
        return bool(shown["markers"])

    # The clock of the routes is that of the last observation and may be a moment behind the database's.
    await eventually(has_markers)
    assert sum(one["letters"] for one in shown["letters"]) == 2
    assert {one["reason"] for one in shown["letters"]} == {"expired"}
    assert [one["kind"] for one in shown["markers"]] == ["brake.tripped"]
    assert [timeline["name"] for timeline in shown["timelines"]] == ["worker-python"]
    assert len(shown["gaps"]) == 1


async def test_the_audit_is_read_page_by_page(api: httpx.AsyncClient, ui_store: Database) -> None:
    async with ui_store.transaction() as tx:
        for number in range(3):
            await audit_sql.record(
                tx,
                Actor(username=f"ada-{number % 2}", client=Client.CLI),
                Action.BRAKE_RELEASE,
                comment=f"comment {number}",
                result="done",
            )
    first = (await api.get("audit", params={"limit": "2"})).json()
    assert [one["comment"] for one in first["operations"]] == ["comment 2", "comment 1"]
    rest = (await api.get("audit", params={"limit": "2", "before": first["older"]})).json()
    assert ([one["comment"] for one in rest["operations"]], rest["older"]) == (["comment 0"], None)
    assert len((await api.get("audit", params={"username": "ada-0"})).json()["operations"]) == 2
    assert (await api.get("audit", params={"action": "letters.reprocess"})).json()["operations"] == []


async def test_while_the_database_is_away_the_answer_says_so_and_memory_still_answers(
    ui_store: Database,
) -> None:
    world = await a_ui_world(ui_store)
    nowhere = Database("postgresql://user@127.0.0.1:1/nowhere", connect_timeout_seconds=1)
    away = await a_ui_world(nowhere, has_looked=False)
    away.diagnoser.latest = world.diagnoser.latest
    async with asking(away) as client:
        for path in ("letters", "brake", "chart", "audit", "events", "groups"):
            answer = await client.get(f"/api/v1/{path}")
            assert answer.status_code == 503, path
            assert answer.headers["Retry-After"] == "5"
            assert answer.json()["error"]["detail"].startswith("database: ")
        for path in ("diagnosis", "workers", "topology", "gate", "shadow"):
            assert (await client.get(f"/api/v1/{path}")).status_code == 200, path


def test_states_that_differ_have_different_versions() -> None:
    from dlq_handler.dead_letters.listing import LetterState, brake_version, letters_version

    at = datetime.now(UTC)
    assert brake_version(BrakeState()) != brake_version(BrakeState(tripped_at=at))
    assert brake_version(BrakeState(tripped_at=at)) == brake_version(BrakeState(tripped_at=at))

    def kept(number: int, next_attempt_at: datetime | None = None) -> LetterState:
        return LetterState(
            id=number, outcome=Outcome.UNRELATED, attempts=0, decided_at=at, next_attempt_at=next_attempt_at
        )

    one, two = kept(1), kept(2)
    assert letters_version([one, two]) == letters_version([two, one]) != letters_version([kept(12)])
    assert letters_version([one]) != letters_version([kept(1, at)]), "it was put up"
