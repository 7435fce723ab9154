"""What `status` prints: for people what is not ok in full, and in a pipe one whole line for each diagnosis."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from dlq_handler.cli import doctor, status
from dlq_handler.cli.open import ops_url
from dlq_handler.cli.status import StatusAnswer
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.diagnosis import REPAIR_FIRST, Health
from dlq_handler.diagnosis.view import WITHOUT_DATABASE, DatabaseFact, Unknown
from dlq_handler.settings import load
from tests.support.views import NOW, a_view, a_worker

GONE = a_worker(name="py\x1b[31m\tthon", silent_seconds=1920, queue=None, ended_last_hour=611)
DIAGNOSES = diagnose(a_view(workers=(GONE, a_worker(number=8)), brake=Unknown("the database sleeps")))


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().out


def test_people_read_what_is_wrong_in_full_and_what_is_ok_in_one_line(printed: Callable[[], str]) -> None:
    status.print_for_people(StatusAnswer(at=NOW, diagnoses=DIAGNOSES))
    out = printed()

    first, second, *_ = out.splitlines()
    headline = "py\\x1b[31m\\tthon (7) is unavailable since 2026-03-01T02:33:00Z (27 min ago)."
    assert first == f"✕ problem  {headline}"
    assert second.startswith(
        "    what   workers: worker unavailable: py\\x1b[31m\\tthon (7) has been unavailable for 27 min; "
    )
    assert "    run    dlq-handler workers list\n" in out
    assert "    read   docs/runbook.md#worker-unavailable\n" in out
    assert (
        "? unknown  The result of the check “brake” is unknown.\n    what   dlq-handler: brake: the database sleeps\n"
        in out
    )
    assert "✓ ok: database, broker," in out
    assert out.endswith("✕ problem: worker unavailable, as of 2026-03-01T03:00:00Z\n")


def test_the_last_line_names_the_replica_that_observed_and_its_mode(printed: Callable[[], str]) -> None:
    answer = StatusAnswer(at=NOW, diagnoses=diagnose(a_view()), replica="one", age_seconds=9.2)
    status.print_for_people(answer)
    assert printed().endswith("✓ ok, as of 2026-03-01T03:00:00Z (9 s ago, by replica one, live mode)\n")


def test_the_doctor_never_ends_with_ok_alone_below_problems() -> None:
    others = [one for one in DIAGNOSES if not one.is_required]
    assert doctor._other_problems(others) == ". 1 other problem: worker unavailable (`dlq-handler status`)"
    assert doctor._other_problems([one for one in others if one.health is not Health.PROBLEM]) == ""


def test_unknown_checks_of_one_server_are_one_line_and_the_repair_stays_visible(
    printed: Callable[[], str],
) -> None:
    away = WITHOUT_DATABASE
    diagnoses = diagnose(
        a_view(
            database=DatabaseFact(
                is_unreachable=True, error="unreachable (connect to db-7:5432: connection refused)"
            ),
            tables=away,
            rights=away,
            workers=away,
            brake=away,
            alarms=Unknown("the management API is slow"),
        )
    )
    status.print_for_people(StatusAnswer(at=NOW, diagnoses=diagnoses))
    lines = printed().splitlines()

    assert lines[0] == "✕ problem  The database is unreachable."
    assert lines[1] == "    what   database: unreachable (connect to db-7:5432: connection refused)"
    [folded] = [line for line in lines if line.startswith("? unknown  own tables, database rights, brake, ")]
    assert folded.endswith(", worker backlog: the database is unreachable")
    assert lines.count(f"    next   {REPAIR_FIRST}") == 1
    assert "    read   docs/runbook.md#broker-alarm" in lines, "alone with its reason, so in full"
    assert lines[-1] == "✕ problem: database, as of 2026-03-01T03:00:00Z"
    status.print_for_people(StatusAnswer(at=NOW, diagnoses=diagnoses * 2))
    assert printed().splitlines()[-1].startswith("✕ problem: database and 1 more, as of ")


def test_a_pipe_gets_one_line_of_tabs_for_each_and_nothing_is_cut_off(printed: Callable[[], str]) -> None:
    status.print_lines(DIAGNOSES)
    header, *lines = [line.split("\t") for line in printed().splitlines()]

    assert len(lines) == len(DIAGNOSES)
    assert {len(line) for line in lines} == {len(header)}, "a tab in a worker's name is none of ours"
    assert lines[0][:4] == ["problem", "workers", "worker unavailable", "2026-03-01T02:33:00Z"]


def test_the_doctor_prints_what_it_requires_as_a_table_and_the_rest_below(printed: Callable[[], str]) -> None:
    required = [one for one in DIAGNOSES if one.is_required]
    doctor.print_required(required)
    doctor.print_others([one for one in DIAGNOSES if not one.is_required])

    out = printed()
    assert out.count("\tworkers\tworkers\t") == 1
    assert (
        "✕ problem  workers: worker unavailable: py\\x1b[31m\\tthon (7) has been unavailable for 27 min"
        in out
    )
    assert "  read: docs/runbook.md#worker-unavailable\n" in out
    assert "✓ ok: safety gate, replicas" not in out, "replicas are required"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:9464"),
        ("::", "http://[::1]:9464"),
        ("10.1.2.3", "http://10.1.2.3:9464"),
        ("ops.example", "http://ops.example:9464"),
    ],
)
def test_who_listens_everywhere_is_asked_on_this_machine(host: str, url: str) -> None:
    environment = {
        "ATTUNE__DLQ_HANDLER__HTTP__HOST": host,
        "ATTUNE__DATABASE__URL": "postgresql://127.0.0.1/attune",
        "ATTUNE__MESSAGE_QUEUE__URL": "amqp://127.0.0.1/",
    }
    assert ops_url(load(None, environment).settings) == url


def test_a_shared_view_is_read_without_the_libraries_of_the_broker() -> None:
    """They take as long to import as the answer: beside a running replica `status` answers within 0.8 s."""
    program = (
        "import sys, dlq_handler.cli.status; "
        "print(*{'httpx', 'aio_pika', 'aiormq', 'fastapi', 'starlette', 'alembic', 'rich.live'} & sys.modules.keys())"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert out.split() == []
