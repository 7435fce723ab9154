"""Write docs/reference/metrics.md from the metrics themselves: `./run references`."""

from pathlib import Path

from dlq_handler.rooms import new_metrics

PAGE = Path("docs/reference/metrics.md")

_HEAD = """# Metrics

Served at `/metrics` on `dlq_handler.http` (port 9464). Every label combination exists at 0 from the first scrape.
`NaN` means "unknown", never "nothing". Gauges of shared state (queue, outbox, workers, slots) are exported by every
replica: aggregate with `max`, never with `sum`. Canaries count in no counter and no histogram but those
named for them; the gauges of queue and outbox show whatever waits there. Beside these there are
the usual `process_*` and `python_info` series.

`leader`, `gate_closed`, `brake_state` and `decisions_last_minute` are computed at the scrape, from the age of the last
read. The other gauges keep the value of the last read: when a server hangs, they become `NaN` once the query has timed
out, for the database after up to 40 s by default (`dlq_handler.database`).

This page is written by `./run references`; a test compares it.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    rows = []
    for family in sorted(new_metrics().registry.collect(), key=lambda family: family.name):
        if not family.name.startswith("dlq_handler_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels: dict[str, list[str]] = {}
        for sample in family.samples:
            if sample.name.endswith(("_created", "_bucket")):
                continue
            for label, value in sample.labels.items():
                values = labels.setdefault(label, [])
                if value not in values:
                    values.append(value)
        shown = "; ".join(
            f"`{label}`: {', '.join(_values(label, values))}" for label, values in labels.items()
        )
        rows.append(f"| `{name}` | {family.type} | {shown or '–'} | {family.documentation} |")
    return _HEAD + "\n".join(rows) + "\n"


def _values(label: str, values: list[str]) -> list[str]:
    # The version would make the page out of date with every release.
    return ["the version"] if label == "version" else values


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
