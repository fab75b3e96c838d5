"""
The hash chain (A1): each event's hash covers the hash before it, its header and the hash of its body.

header    = position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, at - each in decimal
            or as it is, joined by line breaks (no stored name can hold one)
body_hash = SHA-256(UTF-8 of the canonical body)
hash      = SHA-256(prev_hash || body_hash || UTF-8 of the header); before the first event prev_hash is 32 zero bytes
"""

from __future__ import annotations

from hashlib import sha256

GENESIS = bytes(32)


def hash_body(text: str) -> bytes:
    """SHA-256 of a canonical body, 32 bytes."""
    return sha256(text.encode("utf-8")).digest()


def header(
    position: int,
    task: str,
    version: int,
    generation: int,
    epoch: int,
    kind: str,
    schema: int,
    step: str,
    attempt: int,
    key: str,
    actor: str,
    at: int,
) -> bytes:
    """The bytes of an event's header: every column that is not a body or a hash."""
    return (
        f"{position}\n{task}\n{version}\n{generation}\n{epoch}\n{kind}\n{schema}\n{step}\n{attempt}\n{key}\n{actor}\n{at}"
    ).encode()


def link(prev_hash: bytes, body_hash: bytes, head: bytes) -> bytes:
    """The hash of an event, 32 bytes."""
    return sha256(prev_hash + body_hash + head).digest()
