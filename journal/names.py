"""
Names that cross the edge: task ids, commit ids, branches, actors ("Configuration"; reports R10, R96, R100-R102).

Validated once, at the edge, before anything is appended. A name that passes is safe as a file name below our own
folder and never looks like an option.
"""

from __future__ import annotations

import re

from journal.errors import InvalidInputError

_TASK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,3}\Z")
_BRANCH_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)|/\Z|\.\Z|\A[-/.]|\A@\Z")
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
MAX_INTEGER = 2**63 - 1


def shown(text: str, limit: int = 80) -> str:
    """Render hostile text for a message: escaped, shortened, never a control character."""
    if len(text) <= limit and text.isascii() and text.isprintable() and "\\" not in text:
        return text  # most of all; there is nothing to escape
    clean = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def shown_json(text: str) -> str:
    """
    Escape what a terminal would act upon in a JSON text, which stays the same document.

    JSON itself escapes the control characters below the blank, and neither DEL, C1 nor direction marks.
    """
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def task_id(text: str) -> str:
    """Check a task id; uniqueness ignoring case is asked by the log."""
    if not _TASK.match(text) or ".." in text or text.endswith((".", ".lock")):
        raise InvalidInputError(
            what=f"task id '{shown(text)}'",
            why="a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -; no '..', no '.' or '.lock' at the end",
        )
    return text


def commit_id(text: str) -> str:
    """Check a full commit id; abbreviations are refused (R10)."""
    lowered = text.lower()
    if not _COMMIT.match(lowered):
        raise InvalidInputError(
            what=f"commit id '{shown(text)}'",
            why="a commit id has 40 or 64 hex digits, never fewer; `git rev-parse BRANCH` prints the full one",
        )
    return lowered


def branch(text: str) -> str:
    """Check a branch name by git's own rules, and refuse whatever could be read as an option."""
    if not text or len(text) > 200 or _BRANCH_FORBIDDEN.search(text) or _INVISIBLE.search(text):
        raise InvalidInputError(
            what=f"branch '{shown(text)}'", why="not a branch name that git accepts (`git check-ref-format --branch`)"
        )
    return text


def repository(text: str) -> str:
    """Check a repository name such as `acme/widgets`."""
    if not _REPO.match(text) or ".." in text:
        raise InvalidInputError(
            what=f"repository '{shown(text)}'", why="a repository is named like `acme/widgets`: words joined by '/'"
        )
    return text


def word(text: str, what: str) -> str:
    """Check a plain word: a stage, a step, an actor, a lane's part."""
    if not _WORD.match(text):
        raise InvalidInputError(
            what=f"{what} '{shown(text)}'", why="use up to 64 of A-Z a-z 0-9 _ . - and begin with a letter, digit or _"
        )
    return text


def number(value: object, what: str) -> int:
    """Check a number that counts something: a whole one from 1 to 2**63-1, and no truth value."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_INTEGER:
        raise InvalidInputError(what=what, why=f"a whole number from 1 to {MAX_INTEGER} is needed")
    return value


def prose(text: str, what: str, limit: int = 2000) -> str:
    """Check free text written by a person: a reason, evidence. Line breaks are folded into blanks."""
    folded = " ".join(text.split())
    if not folded or len(folded) > limit or _INVISIBLE.search(folded):
        raise InvalidInputError(what=what, why=f"1 to {limit} visible characters are needed")
    return folded
