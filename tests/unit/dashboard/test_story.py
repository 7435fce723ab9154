"""The story of an execution on its page: who did what, in order of time."""

from dlq_handler.dashboard.pages.execution import timeline
from dlq_handler.explain.story import Kind, Moment
from dlq_handler.operations.operation import Action, Operation
from tests.support.views import ago


def test_each_moment_names_its_actor_by_its_fields() -> None:
    moments = [
        Moment(at=ago(60), kind=Kind.DISPATCHED, text="to worker 7"),
        # The text of a moment is for people: it does not decide who acted.
        Moment(at=ago(50), kind=Kind.MOVED, text="running → requested", status="requested"),
        Moment(at=ago(40), kind=Kind.MOVED, text="taken", status="running"),
        Moment(at=ago(10), kind=Kind.DECIDED, text="letter 12: failed"),
    ]
    operation = Operation(
        id=1,
        at=ago(20),
        username="ada",
        client="cli",
        action=Action.LETTERS_REPROCESS,
        letter_ids=[12],
        group_id=None,
        comment="its row is back",
        result="1 queued",
    )

    entries = timeline(moments, [operation])

    assert [(one.who, one.gap) for one in entries] == [
        ("executor", None),
        ("executor", "+10 s"),
        ("worker", "+10 s"),
        ("operator", "+20 s"),
        ("dlq-handler", "+10 s"),
    ]
