"""Settings that are valid one by one and wrong together.

A combination that cannot work is a problem; one that may not do what the operator expects is a warning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dlq_handler.broker.options import is_unverified, vhost_of
from dlq_handler.host.names import STOCK_QUEUE
from dlq_handler.settings.model import Settings
from dlq_handler.web.options import LEAST_TOKEN_CHARACTERS, UiOptions, read_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """`keys` are the ones involved, the one to change first."""

    keys: tuple[str, ...]
    found: str
    wanted: str
    remedy: str


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    own = settings.dlq_handler
    if settings.prefetch < 2 * own.batch.size:
        yield Contradiction(
            keys=("dlq_handler.prefetch", "dlq_handler.batch.size"),
            found=f"is {settings.prefetch} with batch.size {own.batch.size}",
            wanted=f"at least {2 * own.batch.size}, so that one batch fills while another is written",
            remedy="raise it, remove it, or lower dlq_handler.batch.size",
        )
    if own.outbox.lease_seconds < 2 * own.broker.publish_timeout_seconds:
        yield Contradiction(
            keys=("dlq_handler.outbox.lease_seconds", "dlq_handler.broker.publish_timeout_seconds"),
            found=f"is {own.outbox.lease_seconds:g} s with broker.publish_timeout_seconds "
            f"{own.broker.publish_timeout_seconds:g}",
            wanted=f"at least {2 * own.broker.publish_timeout_seconds:g} s, twice the publish timeout: an event is "
            f"published only while its lease is longer than that timeout, and claiming it takes time too",
            remedy="raise it or lower the publish timeout",
        )
    if own.database.lock_timeout_ms >= own.database.statement_timeout_ms:
        yield Contradiction(
            keys=("dlq_handler.database.lock_timeout_ms", "dlq_handler.database.statement_timeout_ms"),
            found=f"is {own.database.lock_timeout_ms} with statement_timeout_ms "
            f"{own.database.statement_timeout_ms}",
            wanted="less than the statement timeout, or a lock of another session counts as a slow database",
            remedy="lower it or raise the statement timeout",
        )
    if own.intake.buffer_bytes < own.intake.stored_body_bytes:
        yield Contradiction(
            keys=("dlq_handler.intake.buffer_bytes", "dlq_handler.intake.stored_body_bytes"),
            found=f"is {own.intake.buffer_bytes} with stored_body_bytes {own.intake.stored_body_bytes}",
            wanted="room for at least one dead letter",
            remedy="raise it or lower stored_body_bytes",
        )
    if own.monitor.fail_unscheduled and not own.monitor.republish_requests:
        yield Contradiction(
            keys=("dlq_handler.monitor.fail_unscheduled", "dlq_handler.monitor.republish_requests"),
            found="is true with republish_requests false",
            wanted="false: an execution is failed only after its request was published again",
            remedy="set fail_unscheduled to false or republish_requests to true",
        )
    if own.lifecycle.orphans.enabled and not own.lifecycle.enabled:
        yield Contradiction(
            keys=("dlq_handler.lifecycle.orphans.enabled", "dlq_handler.lifecycle.enabled"),
            found="is true with lifecycle.enabled false",
            wanted="false: orphaned queues are retired by the stop of a flow, which is off",
            remedy="set lifecycle.enabled to true, or orphans.enabled to false",
        )
    if own.schema_name in {settings.database.schema_name, "public"}:
        yield Contradiction(
            keys=("dlq_handler.schema", "database.schema"),
            found=f"is {own.schema_name!r}, which other programs use too",
            wanted="a schema of dlq-handler's own: it does not change Attune's schema or public",
            remedy="choose another name",
        )
    section, queue = ("shadow", own.shadow.queue) if own.shadow.enabled else ("intake", own.intake.queue)
    if re.fullmatch(re.escape(own.worker.queue_pattern).replace(r"\{id\}", ".+"), queue):
        yield Contradiction(
            keys=(f"dlq_handler.{section}.queue", "dlq_handler.worker.queue_pattern"),
            found=f"is {queue!r}, which is a worker's queue by worker.queue_pattern",
            wanted="a dead-letter queue: dlq-handler would consume the work of a worker",
            remedy="name the dead-letter queue",
        )
    if own.shadow.enabled and own.shadow.queue in {own.intake.queue, STOCK_QUEUE}:
        yield Contradiction(
            keys=("dlq_handler.shadow.queue", "dlq_handler.intake.queue"),
            found=f"is {own.shadow.queue!r}, which holds the dead letters themselves",
            wanted="a queue of its own: shadow mode acknowledges what it has decided",
            remedy="name another queue, or remove it",
        )
    if settings.worker_unavailable_after_seconds <= settings.worker.heartbeat_interval:
        yield Contradiction(
            keys=("dlq_handler.worker.unavailable_after_seconds", "worker.heartbeat_interval"),
            found=f"is {settings.worker_unavailable_after_seconds:g} with worker.heartbeat_interval "
            f"{settings.worker.heartbeat_interval}",
            wanted="more than one heartbeat, or an available worker counts as unavailable between two",
            remedy="raise it to three heartbeats, or remove it",
        )
    if len({vhost_of(url) for url in settings.broker_urls}) > 1:
        yield Contradiction(
            keys=("dlq_handler.broker.urls",),
            found="names different vhosts",
            wanted="one vhost, or dlq-handler would serve another system after a change of broker",
            remedy="give all of them the same path",
        )
    if own.ui.enabled:
        yield from _of_the_ui(own.ui)


def _of_the_ui(ui: UiOptions) -> Iterator[Contradiction]:
    tokens = "dlq_handler.ui.tokens"
    if not ui.is_local and not ui.tokens:
        yield Contradiction(
            keys=("dlq_handler.ui.host", tokens),
            found=f"is {ui.host!r} without dlq_handler.ui.tokens",
            wanted="127.0.0.1, ::1 or localhost: without tokens every client of the address may end executions",
            remedy="add a token, listen on 127.0.0.1, or set dlq_handler.ui.enabled to false",
        )
    owners: dict[str, str] = {}
    for token in ui.tokens:
        try:
            secret = read_token(token.token_file)
        except ValueError as error:
            yield Contradiction(
                keys=(tokens,),
                found=f"names {token.token_file!r} for {token.name}, which {error}",
                wanted=f"a readable file with a token of {LEAST_TOKEN_CHARACTERS} characters or more",
                remedy="write one there: openssl rand -hex 32",
            )
            continue
        if (owner := owners.setdefault(secret, token.name)) != token.name:
            yield Contradiction(
                keys=(tokens,),
                found=f"gives {owner} and {token.name} the same token",
                wanted="a token each, or the audit cannot distinguish them",
                remedy="make another one: openssl rand -hex 32",
            )
    if len({token.name for token in ui.tokens}) < len(ui.tokens):
        yield Contradiction(
            keys=(tokens,),
            found="has a name twice",
            wanted="each name once, or the audit cannot distinguish them",
            remedy="rename one of them",
        )


def warnings(settings: Settings) -> Iterator[str]:
    own = settings.dlq_handler
    dead_letter = settings.message_queue.rabbitmq.dead_letter
    if not dead_letter.enabled:
        yield (
            "message_queue.rabbitmq.dead_letter.enabled is false: no dead letter is received, and executions "
            "whose message expires stay scheduled until a timeout monitor finds them"
        )
    if dead_letter.ttl_ms > own.retention.unresolved_days * 86_400_000:
        yield (
            f"message_queue.rabbitmq.dead_letter.ttl_ms keeps resolved records longer than "
            f"dlq_handler.retention.unresolved_days ({own.retention.unresolved_days}) keeps unresolved ones"
        )
    is_given = "scheduled_timeout" in settings.executor.model_fields_set
    if is_given and settings.executor.scheduled_timeout < settings.least_deadline_seconds:
        yield (
            f"executor.scheduled_timeout is {settings.executor.scheduled_timeout} s, raised to "
            f"{settings.least_deadline_seconds:g} s: message_queue.rabbitmq.worker_queue_ttl_ms and "
            f"dlq_handler.grace.after_ttl_seconds must pass first, or an execution is failed whose message can "
            f"still be run"
        )
    if own.worker.unavailable_after_seconds is not None:
        beats = own.worker.unavailable_after_seconds / settings.worker.heartbeat_interval
        if beats < 3:
            yield (
                f"dlq_handler.worker.unavailable_after_seconds allows only {beats:.1f} heartbeats: a worker "
                f"with one late heartbeat may lose executions that it is running"
            )
    if 0 < own.brake.max_decisions_per_minute < own.batch.size:
        yield (
            f"dlq_handler.brake.max_decisions_per_minute is {own.brake.max_decisions_per_minute}, less than "
            f"dlq_handler.batch.size ({own.batch.size}): one batch of dead letters can trip the brake, and batches are "
            f"written one after the other; raise the limit or lower batch.size"
        )
    if own.ui.enabled and own.ui.external_url is not None and not own.ui.tokens:
        yield (
            f"dlq_handler.ui.external_url is {own.ui.external_url} and there are no dlq_handler.ui.tokens: requests "
            f"that a proxy forwards are refused; add a token"
        )
    if any(is_unverified(url) for url in settings.broker_urls):
        key = "dlq_handler.broker.urls" if own.broker.urls else "message_queue.url"
        yield (
            f"{key} sets no_verify_ssl: the broker's certificate is not checked, so any host on the route can read the "
            f"password; remove it, and name the broker's certificate authority as cafile"
        )
