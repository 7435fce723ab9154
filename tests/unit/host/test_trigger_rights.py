"""The body of a trigger function says which rights its caller needs."""

import pytest

from dlq_handler.host.rights import functions_called, rights_used


def named(body: str) -> set[str]:
    return {
        f"{right.privilege} {right.schema + '.' if right.schema else ''}{right.table}"
        for right in rights_used(body)
    }


@pytest.mark.parametrize(
    ("body", "rights"),
    [
        ("INSERT INTO execution_history (time) VALUES (now());", {"INSERT execution_history"}),
        ("insert\n  into Audit.Event VALUES (1)", {"INSERT audit.event"}),
        ('INSERT INTO "Log" VALUES (1)', {"INSERT Log"}),
        ("SELECT * INTO origin FROM enforcement WHERE id = 1", {"SELECT enforcement"}),
        ("SELECT 1 FROM a JOIN ONLY b ON true", {"SELECT a", "SELECT b"}),
        ("UPDATE queue_stats SET n = n + 1", {"UPDATE queue_stats", "SELECT queue_stats"}),
        ("DELETE FROM lease WHERE id = OLD.id", {"DELETE lease", "SELECT lease"}),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", {"INSERT t", "SELECT t"}),
        (
            "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 2",
            {"INSERT t", "SELECT t", "UPDATE t"},
        ),
        (
            "INSERT INTO t VALUES (1) RETURNING id INTO x; DELETE FROM u",
            {"INSERT t", "SELECT t", "DELETE u", "SELECT u"},
        ),
        ("EXECUTE 'INSERT INTO t VALUES ($1)' USING NEW.id", {"INSERT t"}),
        ("-- FROM a\n/* JOIN b\n */ NEW.updated := now();", set()),
    ],
)
def test_rights_of_a_body(body: str, rights: set[str]) -> None:
    assert named(body) == rights


def test_a_comparison_yields_a_name_that_no_catalog_knows() -> None:
    assert named("IF NEW.status IS DISTINCT FROM OLD.status THEN") == {"SELECT old.status"}


def test_functions_that_a_body_calls() -> None:
    body = "PERFORM pg_notify('x', Execution_Payload (NEW)::text); -- not_me(1)"
    assert {"pg_notify", "execution_payload"} <= functions_called(body)
    assert "not_me" not in functions_called(body)
