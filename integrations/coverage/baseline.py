"""
The baseline: a JSON file in a chain of commits under one ref, raised by compare-and-swap, never lowered (R97).

Each raise is one commit whose trailers name the step that made it. So a probe by key stays decidable after later
raises by other tasks, `git log` tells the history, and no old value of the ref can recur.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote

from integrations.coverage.counts import Counts, Report, Share, share, total
from integrations.coverage.store import Store
from journal.errors import DamagedError, InvalidInputError
from journal.ports import Call, Subject

FILE = "baseline.json"
_SCHEMA = 1
_KEY, _JOURNAL, _FENCE = "Transition: ", "Transition-Journal: ", "Transition-Fence: "


@dataclass(frozen=True, slots=True)
class Raise:
    """One raise of the baseline, as its commit tells it."""

    commit: str
    journal: str
    cites: str  # position:hash of the intent
    fence: str  # epoch.attempt


def ref_of(subject: Subject) -> str:
    """The ref of a branch's baseline; the `+` keeps it apart from every key ref, whatever the names are."""
    return f"refs/journal/coverage/{_part(subject.repo)}+{_part(subject.base)}"


async def read_baseline(store: Store, tip: str) -> Report:
    """
    Read the counts at a commit of the chain; none for "" (never raised).

    Raises:
        DamagedError: The file is missing or not one of ours.
    """
    if not tip:
        return {}
    content = await store.read_file(tip, FILE)
    try:
        document = json.loads(content or b"")
        if document["schema"] != _SCHEMA:
            raise DamagedError(path=FILE, why=f"schema {document['schema']} is not {_SCHEMA}", remedy="upgrade")
        files = document["files"].items()
        return {name: Counts(_share(entry["lines"], name), _share(entry["branches"], name)) for name, entry in files}
    except (ValueError, KeyError, TypeError, AttributeError, InvalidInputError) as error:
        raise DamagedError(
            path=f"{FILE} at {tip}", why=f"not a baseline: {error!r}", remedy="move its ref back"
        ) from error


def written(report: Report, call: Call) -> bytes:
    """The file's bytes: sorted, one line a file, and who raised it last."""
    sums = total(report)
    document = {
        "schema": _SCHEMA,
        "files": {name: _pairs(counts) for name, counts in report.items()},
        "totals": _pairs(sums),
        "last": {"key": call.key, "fence": _fence(call), "journal": call.journal_id, "cites": _cites(call)},
    }
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def message(call: Call) -> str:
    """The message of a raise."""
    subject = call.subject
    return (
        f"Raise the coverage of {subject.base} by {subject.branch}\n\n"
        f"{_KEY}{call.key}\n{_FENCE}{_fence(call)}\n{_JOURNAL}{call.journal_id}@{_cites(call)}\n"
    )


async def raise_by(store: Store, tip: str, call: Call) -> Raise | None:
    """The raise that carries the call's key, ours before another journal's."""
    if not tip:
        return None
    found = [
        _read(commit, text)
        for commit, text in await store.messages(tip, f"{_KEY}{call.key}")
        if f"{_KEY}{call.key}" in text.splitlines()
    ]
    ours = [one for one in found if one.journal == call.journal_id]
    return next(iter(ours or found), None)


def _read(commit: str, text: str) -> Raise:
    trailers = {line.partition(": ")[0] + ": ": line.partition(": ")[2] for line in text.splitlines()}
    journal, _, cites = trailers.get(_JOURNAL, "").partition("@")
    return Raise(commit, journal, cites, trailers.get(_FENCE, ""))


def _share(pair: list[int], name: str) -> Share:
    covered, of = pair
    return share(covered, of, name)


def _pairs(counts: Counts) -> dict[str, list[int]]:
    return {
        "lines": [counts.lines.covered, counts.lines.total],
        "branches": [counts.branches.covered, counts.branches.total],
    }


def _fence(call: Call) -> str:
    return f"{call.epoch}.{call.attempt}"


def _cites(call: Call) -> str:
    return f"{call.anchor.position}:{call.anchor.hash}" if call.anchor else ""


def _part(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
