"""Between rows of the event table and events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from journal.chain import hash_body, header, link
from journal.codec import SCHEMAS, decode, encode, schema_of
from journal.errors import UnknownEventError
from journal.events import Body, Draft, Event, StageMoved, Unread, key_of

Row = tuple[int, str, int, int, int, str, int, str, int, str, str, str, bytes, int, bytes, bytes]
"""In the order of `schema.COLUMNS`."""

SHORTEST_SECRET = 6
"""Characters; a shorter one would be found by chance in texts that hold no secret."""

INSERT = "INSERT INTO journal_events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"


def place(
    task: str,
    draft: Draft,
    *,
    position: int,
    version: int,
    at: int,
    prev_hash: bytes,
    basis: int,
    redact: Redact | None = None,
) -> Event:
    """
    Give a draft its place in the log.

    Args:
        task: The stream; empty for the log's own.
        draft: What happened.
        position: Next place in the log.
        version: Next place in the stream.
        at: Microseconds since 1970.
        prev_hash: Hash of the event before.
        basis: Position of the outcome a stage move rests on.
        redact: Takes known secrets out of the stored text (L6).
    """
    if isinstance(draft.body, StageMoved):
        draft = replace(draft, body=replace(draft.body, because=basis))
    text = encode(draft.body)
    if redact is not None and (clean := redact(text)) != text:
        draft = replace(draft, body=decode(draft.kind, SCHEMAS[draft.kind], clean))
        text = clean
    schema = schema_of(draft.body)
    body_hash = hash_body(text)
    head = header(
        position, task, version, draft.generation, draft.epoch, draft.kind, schema, draft.step, draft.attempt,
        key_of(task, draft), draft.actor, at,
    )  # fmt: skip
    digest = link(prev_hash, body_hash, head)
    return Event(position, task, version, draft, schema, at, text, body_hash, prev_hash, digest)


class Redact:
    """Replaces every known secret in a canonical body before it is hashed and stored; field names are left alone."""

    def __init__(self, secrets: Sequence[str]) -> None:
        # Longest first, so that a secret that contains another one leaves nothing of itself behind.
        self._secrets = sorted({s for s in secrets if len(s) >= SHORTEST_SECRET}, key=len, reverse=True)
        # As they stand in JSON text: a secret with a quote in it is written with a backslash there.
        self._written = [json.dumps(s, ensure_ascii=False)[1:-1] for s in self._secrets]

    def __call__(self, text: str) -> str:
        if not any(secret in text for secret in self._written):
            return text
        return json.dumps(self._clean(json.loads(text)), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, "[redacted]")
                return value
            case dict():
                return {name: self._clean(inner) for name, inner in value.items()}
            case list():
                return [self._clean(inner) for inner in value]
            case _:
                return value


def to_row(event: Event) -> Row:
    """An event as the table stores it."""
    draft = event.draft
    return (
        event.position, event.task, event.version, draft.generation, draft.epoch, str(draft.kind), event.schema,
        draft.step, draft.attempt, event.key, draft.actor, event.body_text, event.body_hash, event.at,
        event.prev_hash, event.hash,
    )  # fmt: skip


def from_row(row: Sequence[Any], read: Callable[[str, int, str], Body] = decode) -> Event:
    """
    A stored row as an event; `read` makes a body of its kind, schema and text.

    Raises:
        UnknownEventError: The body is of an unknown kind or newer schema; `as_far_as_known` goes on.
        DamagedError: It is no such body.
    """
    position, task, version, generation, epoch, kind, schema, step, attempt, _, actor, text, *rest = row
    body_hash, at, prev_hash, own_hash = rest
    draft = Draft(read(kind, schema, text), epoch, generation, actor, step, attempt)
    return Event(position, task, version, draft, schema, at, text, body_hash, prev_hash, own_hash)


def as_far_as_known(row: Sequence[Any], read: Callable[[str, int, str], Body] = decode) -> Event:
    """
    A stored row as an event; what a newer version wrote becomes `Unread`, so that only its own task stands still.

    Raises:
        DamagedError: The body is of a known kind and is no such body.
    """
    try:
        return from_row(row, read)
    except UnknownEventError as error:
        position, task, version, generation, epoch, kind, schema, step, attempt, _, actor, text, *rest = row
        body_hash, at, prev_hash, own_hash = rest
        draft = Draft(
            Unread(kind, f"event {position} cannot be read: {error}"), epoch, generation, actor, step, attempt
        )
        return Event(position, task, version, draft, schema, at, text, body_hash, prev_hash, own_hash)
