"""Names at the edge: hostile ones are refused with a message that is safe to print (M; R10, R96, R100-R102)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal import names
from journal.errors import InvalidInputError

HOSTILE = ["", " ", "-rf", "--upload-pack=x", "a b", "a\n", "a\0", "../a", "a/../b", "\u202ea", "caf\udce9", "x" * 300]


def refused(check: Callable[[str], str], text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check(text)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400
    message.encode()


@pytest.mark.proves("R100", "R101", "R102")
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("check", [names.task_id, names.commit_id, names.branch, names.repository])
def test_hostile_names_are_refused_everywhere_in_printable_words(check: Callable[[str], str], text: str) -> None:
    refused(check, text)


@pytest.mark.parametrize("text", ["ORCH-104", "1", "a.b_c-d", "x" * 64])
def test_good_task_ids_pass(text: str) -> None:
    assert names.task_id(text) == text


@pytest.mark.parametrize("text", ["x" * 65, "a..b", "a.", "a.lock", ".a", "_a", "é", "a/b", "a\\b", "a:b", "T-1\n"])
def test_task_ids_that_a_file_or_ref_could_not_carry_are_refused(text: str) -> None:
    refused(names.task_id, text)


@pytest.mark.proves("R10")
def test_only_full_commit_ids_pass_and_they_are_lowered() -> None:
    assert names.commit_id("A" * 40) == "a" * 40
    assert names.commit_id("0" * 64) == "0" * 64
    for text in ("a" * 7, "a" * 39, "a" * 41, "g" * 40, "a" * 40 + "\n", "HEAD"):
        refused(names.commit_id, text)


@pytest.mark.parametrize("text", ["main", "feature/x-1", "a.b", "café", "users/é"])
def test_good_branches_pass(text: str) -> None:
    assert names.branch(text) == text


@pytest.mark.parametrize(
    "text",
    ["a..b", "a//b", "/a", "a/", "a.", "a.lock", "a.lock/b", "@", "a@{b", "a^", "a~1", "a:b", "a?", "a*", "a[", "a\\b",
     ".a", "a/.b", "-a"],
)  # fmt: skip
def test_branches_that_git_refuses_are_refused(text: str) -> None:
    refused(names.branch, text)


def test_good_repositories_pass_and_odd_ones_do_not() -> None:
    assert names.repository("acme/widgets") == "acme/widgets"
    assert names.repository("widgets") == "widgets"
    for text in ("a/b/c/d/e", "/a", "a/", "a//b", "a/.git", "https://x/y"):
        refused(names.repository, text)


def test_prose_is_folded_into_one_line_and_must_say_something() -> None:
    assert names.prose(" seen in\n the forge ", "evidence") == "seen in the forge"
    for text in ("", " \n", "a\u202eb", "a\0b", "x" * 2001):
        with pytest.raises(InvalidInputError):
            names.prose(text, "evidence")


@pytest.mark.proves("R100")
@pytest.mark.parametrize("text", [*HOSTILE, "\x1b[31m", "é"])
def test_whatever_is_shown_is_short_and_printable(text: str) -> None:
    shown = names.shown(text)
    assert shown.isprintable()
    assert len(shown) <= 80
