"""`doctor` and `status` print the same answer about the replica, and shadow mode is no problem of the doctor's."""

from dataclasses import replace

from dlq_handler.cli.doctor import beyond, with_replica_answer
from dlq_handler.diagnosis import doctor_broker_lines
from dlq_handler.diagnosis.diagnose import diagnose
from dlq_handler.diagnosis.own import RESTART
from dlq_handler.diagnosis.view import Hung
from dlq_handler.topology.consumers import Consumers
from tests.support.views import INTAKE, a_queue, a_view

HANGS = "the process at http://127.0.0.1:9464 does not answer within 2 s: it hangs"


def test_a_replica_that_hangs_is_to_be_restarted_in_every_line() -> None:
    view = replace(a_view(), intake=a_queue(INTAKE, count=0, ready=6, tags=()), gate=Hung(HANGS))
    own = doctor_broker_lines.sidecar(Consumers(count=0, ready=6), queue=INTAKE, own_prefix="ours.")

    [seen] = with_replica_answer([own], diagnose(view))

    assert own.fix != RESTART
    assert (seen.health, seen.fix) == (own.health, RESTART)
    assert HANGS in seen.what


def test_without_a_better_answer_the_line_of_the_doctor_stays() -> None:
    own = doctor_broker_lines.sidecar(None, queue=INTAKE, own_prefix="ours.")

    assert with_replica_answer([own], diagnose(a_view())) == [own]


def test_shadow_mode_is_no_problem_of_the_doctor() -> None:
    found = diagnose(replace(a_view(), is_shadow=True))

    assert "shadow" in {one.kind for one in found}
    assert "shadow" not in {one.kind for one in beyond([], found)}
