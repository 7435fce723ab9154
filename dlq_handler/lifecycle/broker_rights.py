"""The queues and exchanges that the features of the lifecycle need rights on. Pure."""

import re
from collections.abc import Collection, Mapping

from dlq_handler.host.rights import Feature
from dlq_handler.lifecycle.flow_blueprint import WORKER_BLUEPRINT, FlowBlueprint
from dlq_handler.topology.blueprint import LifecycleQueues

# The values that parameters may have.
_VALUE = "[A-Za-z0-9._-]+"
_WORKER_ID = "[0-9]+"


def queues_of_features(
    blueprints: Mapping[str, FlowBlueprint], features: Collection[Feature]
) -> LifecycleQueues | None:
    """None: no feature needs more rights. Orphans are queues of the blueprint `worker`."""
    if Feature.LIFECYCLE in features:
        return _queues_of(blueprints.values())
    return _queues_of([blueprints[WORKER_BLUEPRINT]]) if Feature.ORPHANS in features else None


def _queues_of(blueprints: Collection[FlowBlueprint]) -> LifecycleQueues:
    templates = [
        (template, blueprint) for blueprint in blueprints for template in (*blueprint.flow, *blueprint.shared)
    ]
    return LifecycleQueues(
        patterns=tuple(
            dict.fromkeys(_pattern(template.name, blueprint) for template, blueprint in templates)
        ),
        sources=tuple(dict.fromkeys(template.exchange for template, _ in templates)),
        dead_letter_exchanges=tuple(
            dict.fromkeys(template.dlx for template, _ in templates if template.dlx is not None)
        ),
    )


def _pattern(name: str, blueprint: FlowBlueprint) -> str:
    """`worker.{id}.executions` becomes a regular expression of all such names."""
    pattern = re.escape(name)
    for param in blueprint.params:
        value = _WORKER_ID if param == blueprint.worker_param else _VALUE
        pattern = pattern.replace(re.escape(f"{{{param}}}"), value)
    return pattern
