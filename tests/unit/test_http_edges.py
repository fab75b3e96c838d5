from __future__ import annotations

import hashlib
import inspect
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from integrations.http.auth import FAILURES, Failures, Tokens
from integrations.http.bodies import strict_json
from integrations.http.idempotency import REMEMBERED, Answers
from integrations.http.problems import RESULTS, Problem, from_error, from_result
from journal import errors
from journal.errors import InvalidInputError, JournalError
from journal.results import Freed, Result
from projections.points import read_point, time_us

# -- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R96", "R101")
@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": NaN}', b"[Infinity]", b"-Infinity", b'{"a": 1, "a": 1}', b'[{"b": {"c": 1, "c": 2}}]', b'"\\ud800"',
        b'{"\\udc00": 1}', b"9223372036854775808", b"-9223372036854775808", b"1" * 400, b"[" * 100_000, b"\xed\xa0\x80",
        b"", b"{'a': 1}", b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_what_no_honest_sender_means_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInputError) as refused:
        strict_json(raw)
    assert str(refused.value).isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_honest_json_is_read_as_it_is(data: Any, escaped: bool) -> None:
    assert strict_json(json.dumps(data, ensure_ascii=escaped).encode()) == data


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_never_more(raw: bytes) -> None:
    with suppress(InvalidInputError):
        strict_json(raw)


# -- tables -----------------------------------------------------------------------------------------------------------


def every_error() -> list[type[JournalError]]:
    return [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, JournalError)]


@pytest.mark.parametrize("kind", every_error(), ids=lambda c: c.__name__)
def test_every_error_has_a_status_that_says_who_can_mend_it(kind: type[JournalError]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "what happened")
    error.holder = "somebody"  # type: ignore[attr-defined]
    status = from_error(error).status
    if issubclass(kind, errors.StoreError):
        assert status == 503
    elif kind not in (JournalError, errors.InadmissibleError):
        assert 400 <= status < 500


def test_every_result_has_an_answer() -> None:
    """A new result without one would be a 500 on the day it first happens."""
    for kind in (*get_args(Result), Freed):
        fields = kind.__dataclass_fields__
        result = kind(**{name: 1 if f.type == "int" else "x" for name, f in fields.items()})
        answer = from_result(result)
        assert answer.status_code == RESULTS[kind][0]
        assert json.loads(bytes(answer.body))["task"] == "x"


def test_a_bugs_text_is_not_told() -> None:
    assert b"secret" not in from_error(errors.InadmissibleError(rule="I9", detail="secret")).response().body


# -- tokens, keys, times ----------------------------------------------------------------------------------------------


def test_tokens_do_not_show_themselves() -> None:
    assert "hush" not in repr(Tokens("hush", "hush-too"))


@given(st.text())
def test_no_text_but_the_token_opens(text: str) -> None:
    tokens = Tokens("the-token", "")
    assert tokens.admits(f"Bearer {text}") == (text.strip() == "the-token")
    assert not tokens.admits(text)


def test_a_token_is_changed_by_replacing_its_file_and_a_missing_file_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    tokens = Tokens("first", operator_file=file)
    assert tokens.admits("Bearer first")
    (tmp_path / "next").write_text("second\n")
    (tmp_path / "next").replace(file)
    assert tokens.admits("Bearer second") and not tokens.admits("Bearer first")
    file.unlink()
    assert not any(tokens.admits(f"Bearer {word}") for word in ("first", "second", ""))


@pytest.mark.proves("R101")
def test_of_a_token_only_its_digest_need_be_kept_and_the_digest_opens_nothing(tmp_path: Path) -> None:
    file, kept = tmp_path / "token", f"sha256:{hashlib.sha256(b'the-token').hexdigest()}"
    file.write_text(kept + "\n")
    for tokens in (Tokens("", operator_file=file), Tokens(kept)):
        assert tokens.admits("Bearer the-token")
        assert not any(tokens.admits(f"Bearer {word}") for word in (kept, kept.removeprefix("sha256:"), "", "other"))
    assert Tokens(reading=True, reader=kept).reads("Bearer the-token")
    assert Tokens("sha256:short").admits("Bearer sha256:short"), "what is no digest is a token like any other"


def test_the_readers_token_reads_and_does_nothing_else() -> None:
    tokens = Tokens("all", "local", reading=True, reader="eyes")
    assert tokens.reads("Bearer eyes") and not tokens.admits("Bearer eyes")
    assert all(tokens.reads(f"Bearer {word}") and tokens.admits(f"Bearer {word}") for word in ("all", "local"))
    assert not Tokens("all", reading=True).reads("Bearer ")


def test_wrong_tokens_without_end_are_told_to_wait_and_a_minute_later_are_not() -> None:
    failures = Failures()
    assert [failures.wait_s(100.0) for _ in range(FAILURES)] == [0] * FAILURES
    assert failures.wait_s(100.0) == 60 and failures.wait_s(130.5) == 30
    assert failures.wait_s(160.0) == 0


def request(key: str) -> Request:
    headers = [(b"idempotency-key", key.encode())]
    return Request({"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": headers,
                    "server": ("journal", 80), "scheme": "http"})  # fmt: skip


async def test_only_so_many_answers_are_remembered() -> None:
    answers, made = Answers(), 0

    async def make() -> Response:
        nonlocal made
        made += 1
        return Response(b"%d" % made)

    for n in range(REMEMBERED + 10):
        await answers.once(request(f"k{n}"), b"", make)
    assert (await answers.once(request(f"k{REMEMBERED + 9}"), b"", make)).body == b"%d" % (REMEMBERED + 10)
    assert (await answers.once(request("k0"), b"", make)).body == b"%d" % (REMEMBERED + 11)


@pytest.mark.parametrize("fault", [Problem(503, "standby", "not now"), RuntimeError("a bug")])
async def test_a_failure_is_not_remembered_so_that_the_sender_may_try_again(fault: Exception) -> None:
    answers, tries = Answers(), 0

    async def make() -> Response:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise fault
        return Response(b"done")

    if isinstance(fault, Problem):
        assert (await answers.once(request("k"), b"", make)).status_code == 503
    else:
        with pytest.raises(RuntimeError):
            await answers.once(request("k"), b"", make)
    assert (await answers.once(request("k"), b"", make)).body == b"done"


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00 01:00", 0),  # a '+' that came unescaped
        ("1960-01-01T00:00:00Z", 0),
    ],
)
def test_a_time_with_its_zone_is_microseconds(text: str, micros: int) -> None:
    assert time_us(text, "at") == micros


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with suppress(InvalidInputError):
        assert 0 <= time_us(text, "at") < 2**63


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{1,25}(s|m|min|h|d)?", fullmatch=True))
def test_any_text_is_a_point_or_refused(text: str) -> None:
    with suppress(InvalidInputError):
        position, at_us = read_point(text, 1_700_000_000_000_000, "at")
        assert 0 <= (at_us if position is None else position) < 2**63


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("12", (12, 0)),
        ("0", (0, 0)),
        ("9" * 25, (2**63 - 1, 0)),
        ("90s", (None, 10_000_000)),
        ("2h", (None, 0)),  # before 1970: nothing had happened
        ("1970-01-01T00:01", (None, 60_000_000)),  # no zone: UTC
    ],
)
def test_a_point_is_a_position_a_time_or_how_long_ago(text: str, point: tuple[int | None, int]) -> None:
    assert read_point(text, 100_000_000, "--at") == point
