"""Canonical bodies: what is stored is read back to the same value and the same bytes, or refused (L4, L6, I3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal import codec
from journal.codec import BODIES, BODY_LIMIT, SCHEMAS, decode, encode, is_canonical, schema_of
from journal.errors import DamagedError, InvalidInputError, UnknownEventError
from journal.events import (
    Acquired,
    Applied,
    Body,
    Intended,
    JournalCreated,
    Observed,
    Opened,
    Owner,
    Parked,
    Rejected,
    Released,
    StageMoved,
)
from journal.log.rows import Redact
from journal.words import Cause, Ending, Fact, Guard, Kind
from tests.builders import plan

EXAMPLES: list[Body] = [
    Opened("acme/widgets", "feature/1", "main", "a" * 40, 7, "review"),
    Acquired(Owner("run-1", "i" * 32, "host", 1, "boot", 5), plan("merge_pr", lane="x"), "run-0", Cause.GONE),
    Acquired(Owner("run-1"), plan("merge_pr"), trace="4bf92f3577b34da6a3ce929d0e0e4736"),
    Observed("open", Fact.UNKNOWN, Guard.PROBED, "wait", (("a", 1), ("b", None), ("c", True), ("d", 'é✓\n"\\')), ()),
    StageMoved("review", "testing", because=9),
    Released(Ending.WAITING, "not yet", 1500),
    Parked("why", "T-1/1/1"),
    JournalCreated("f" * 32),
]


@pytest.mark.proves("L6", "I3")
@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: body.kind)
def test_a_body_is_read_back_to_the_same_value_and_written_to_the_same_bytes(body: Body) -> None:
    text = encode(body)
    assert decode(body.kind, SCHEMAS[body.kind], text) == body
    assert encode(decode(body.kind, SCHEMAS[body.kind], text)) == text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.proves("L6")
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.none()
        | st.booleans()
        | st.integers(-(2**63) + 1, 2**63 - 1)
        | st.text(st.characters(exclude_categories=["Cs"])),
        max_size=8,
    )
)
def test_any_evidence_of_scalars_survives(seen: dict[str, str | int | bool | None]) -> None:
    body = Applied("probe", tuple(sorted(seen.items())))
    text = encode(body)
    assert decode(Kind.APPLIED, 1, text) == body
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63,
    2**70,
    1.0,
    1.5,
    "",
    "x",
    "open",
    "apply",
    [],
    ["a"],
    {},
    {"run": "r"},
    {"a": 1.5},
)
_DROPPED = object()


def changed(stored: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every copy of a stored body in which one value, at any depth, is dropped, added or replaced by something odd."""
    for name in (*stored, "more"):
        for odd in (*ODD, _DROPPED):
            kept = {key: value for key, value in stored.items() if key != name}
            yield kept if odd is _DROPPED else kept | {name: odd}
        if isinstance(inner := stored.get(name), dict):
            yield from (stored | {name: other} for other in changed(inner))


@pytest.mark.proves("L4", "L6")
@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: body.kind)
def test_the_quick_reader_accepts_nothing_that_strict_validation_refuses(body: Body) -> None:
    quick, taken = codec._reader(body.kind), 0
    for odd in changed(json.loads(encode(body))):
        text = json.dumps(odd)
        if (read := quick(text)) is not None:
            taken += 1
            assert repr(read) == repr(codec._strictly(body.kind, text)), text
    assert taken, "nothing was compared"


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda body: body.kind)
def test_what_was_written_here_is_read_the_quick_way(body: Body) -> None:
    assert codec._reader(body.kind)(encode(body)) == body


@pytest.mark.proves("R94")
@pytest.mark.parametrize(
    "body",
    [
        *EXAMPLES,
        Intended(Guard.PROBED, True, "merge:a/b", 5000, (("head", "a" * 40),)),
        Intended(Guard.PROBED, True, '},"guard":"fenced"', 1, (("expected", '"guard":"blind"}'), ("guard", "fenced"))),
        Applied("apply", (("commit", "b" * 40),)),
        Rejected((("status", 409),)),
    ],
    ids=lambda body: body.kind,
)
def test_the_gist_of_a_body_is_the_body_without_its_evidence(body: Body) -> None:
    """What a rebuilt view reads says all that a fold of states asks for, and no evidence."""
    gist = codec.gist(body.kind, SCHEMAS[body.kind], encode(body))
    without = {field.name: () for field in fields(body) if field.name in {"seen", "reply", "expected"}}
    assert gist == replace(body, **without)  # type: ignore[arg-type]


@pytest.mark.proves("L4")
@pytest.mark.parametrize(("kind", "schema"), [("teleported", 1), ("applied", 99), ("intended", 99)])
def test_the_gist_of_what_a_newer_version_wrote_is_refused_like_the_whole(kind: str, schema: int) -> None:
    with pytest.raises(UnknownEventError):
        codec.gist(kind, schema, "{}")


@pytest.mark.proves("L4")
def test_every_kind_has_a_body_and_a_schema_number() -> None:
    assert set(BODIES) == set(Kind) - {Kind.UNREAD} == set(SCHEMAS)


@pytest.mark.proves("L6")
def test_the_limit_is_sharp() -> None:
    empty = len(encode(Parked("", "a")).encode())
    assert encode(Parked("x" * (BODY_LIMIT - empty), "a"))
    with pytest.raises(InvalidInputError, match=f"{BODY_LIMIT + 1} bytes"):
        encode(Parked("x" * (BODY_LIMIT - empty + 1), "a"))


@pytest.mark.proves("L4", "I3", "R101")
@pytest.mark.parametrize(
    ("kind", "schema", "text", "why"),
    [
        ("teleported", 1, "{}", "unknown to this program"),
        ("parked", 2, '{"alert":"a","reason":"r"}', "newer than 1"),
        ("parked", 1, '{"alert":"a"}', "reason"),
        ("parked", 1, '{"alert":"a","reason":"r","more":1}', "more"),
        ("parked", 1, '{"alert":"a","reason":5}', "reason"),
        ("parked", 1, "[]", "body"),
        ("parked", 1, "{", "body"),
        ("released", 1, '{"ending":"vanished"}', "ending"),
        ("released", 1, '{"ending":"waiting","look_ms":1.5}', "look_ms"),
        ("applied", 1, '{"seen":{"a":[1]},"via":"probe"}', "seen"),
        ("applied", 1, '{"seen":{"a":0.5},"via":"probe"}', "seen"),
        ("acquired", 1, '{"owner":{"run":"r"},"plan":{"target":"b"}}', "plan|steps|source"),
        ("acquired", 1, '{"owner":{"run":"r"},"plan":{"source":"a","target":"b","steps":[{"name":"x","z":1}]}}', "z"),
        ("acquired", 1, '{"owner":{"run":"r"},"plan":{"source":"a","target":"b","steps":[{"guard":"?","name":"x"}]}}',
         "valid"),
    ],
)  # fmt: skip
def test_what_is_no_such_body_is_damage_and_never_guessed_at(kind: str, schema: int, text: str, why: str) -> None:
    with pytest.raises(DamagedError, match=why):
        decode(kind, schema, text)


@pytest.mark.proves("L4", "T11")
def test_an_older_shape_is_lifted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.SCHEMAS, Kind.PARKED, 3)
    monkeypatch.setitem(codec.UPCASTERS, (Kind.PARKED, 1), lambda old: {"why": old["text"]})
    monkeypatch.setitem(codec.UPCASTERS, (Kind.PARKED, 2), lambda old: {"reason": old["why"], "alert": ""})
    assert decode("parked", 1, '{"text":"x"}') == Parked("x", "")
    assert decode("parked", 2, '{"why":"x"}') == Parked("x", "")


@pytest.mark.proves("L4", "I3")
def test_a_body_without_what_was_added_is_stored_as_the_version_before_stored_it() -> None:
    """Going back stays possible, and no hash of an old event changes (decision 0020)."""
    plain, traced = Acquired(Owner("r"), plan("merge_pr")), Acquired(Owner("r"), plan("merge_pr"), trace="f" * 32)
    assert (schema_of(plain), schema_of(traced), schema_of(Parked("", ""))) == (1, 2, 1)
    assert decode("acquired", 1, encode(plain)) == decode("acquired", 2, encode(plain)) == plain
    assert is_canonical(plain, 1, encode(plain)) and is_canonical(traced, 2, encode(traced))
    assert not is_canonical(plain, 2, encode(plain)), "a second form of the same body"
    assert not is_canonical(traced, 1, encode(traced)), "a field that the schema does not have"


@pytest.mark.proves("L6")
def test_redaction_takes_secrets_out_of_values_and_leaves_the_shape_alone() -> None:
    redact = Redact(["reason", "hunter22", "hunter2", "short"])
    text = encode(Parked("hunter22 and hunter2, short of reason", "a"))
    assert json.loads(redact(text)) == {"alert": "a", "reason": "[redacted] and [redacted], short of [redacted]"}
    untouched = encode(Parked("nothing here", "a"))
    assert Redact(["hunter2"])(untouched) is untouched
