"""
The gate against a coverage drop, asked before the merge (DESIGN 6; E12).

Only files that the branch touches can close it: a baseline raised by somebody else meanwhile is no fault of this
branch (R97). A report on this machine's disk cannot be tied to a tree, so it answers for all its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pydantic import Field

from integrations.coverage.baseline import read_baseline, ref_of
from integrations.coverage.counts import Counts, Report, Share
from integrations.coverage.source import ReportConfig, measured
from integrations.coverage.store import Store
from journal import names
from journal.errors import InvalidInputError, JournalError
from journal.ports import Answer, Call
from journal.words import Opening, evidence


class CoverageGateConfig(ReportConfig):
    """`[gates.coverage] use = "coverage"`."""

    tolerance_lines: int = Field(default=0, ge=0, le=1000)  # a file may lose so many covered lines; never a percentage


class CoverageGate:
    """Closed by a missing or unreadable report and by a drop in a file that the branch touches."""

    def __init__(self, config: CoverageGateConfig, stores: Callable[[str], Store]) -> None:
        self._config, self._stores = config, stores

    async def ask(self, call: Call) -> Answer:
        try:
            return await self._ask(call)
        except JournalError as error:
            return Answer(Opening.UNKNOWN, evidence(source="coverage", reason="cannot_ask"), str(error)[:400])

    async def _ask(self, call: Call) -> Answer:
        store = self._stores(call.subject.repo).within(call)
        tip, base = await store.refs(ref_of(call.subject), f"refs/heads/{names.branch(call.subject.base)}")
        baseline = await read_baseline(store, tip)
        try:
            report = await measured(self._config, store, call.subject)
        except InvalidInputError as error:
            return Answer(Opening.CLOSED, evidence(source="coverage", reason="no_report"), str(error)[:400])
        seen = evidence(source="coverage", baseline=tip, head=call.subject.head)
        for name in await self._files(store, call.subject.head, base, baseline):
            if drop := await self._drop(store, call.subject.head, name, baseline[name], report):
                return Answer(Opening.CLOSED, seen, drop)
        return Answer(Opening.OPEN, seen)

    async def _files(self, store: Store, head: str, base: str, baseline: Report) -> Iterable[str]:
        if self._config.file or not baseline:
            return sorted(baseline)
        since = await store.merge_base(head, base) if base else ""
        if not since:
            return sorted(baseline)
        return sorted(baseline.keys() & set(await store.changed_files(since, head)))

    async def _drop(self, store: Store, head: str, name: str, old: Counts, report: Report) -> str:
        new = report.get(name)
        if new is None:
            deleted = await store.read_file(head, name) is None
            return "" if deleted else f"{name} is not in the coverage report any more"
        if new.lines.below(old.lines, self._config.tolerance_lines):
            return _sentence(name, old.lines, new.lines, "lines")
        if new.branches.below(old.branches, self._config.tolerance_lines):
            return _sentence(name, old.branches, new.branches, "branches")
        return ""


def _sentence(name: str, old: Share, new: Share, what: str) -> str:
    return f"coverage of {name} falls from {old.covered}/{old.total} to {new.covered}/{new.total} {what}"
