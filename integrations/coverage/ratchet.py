"""
`ratchet`: raise the coverage baseline to what the task's head measured (DESIGN 6; R97).

The far side refuses a second raise by the same key: the key is looked up in the chain under the very value that the
compare-and-swap then demands. That makes it safe to lose the race against another task and try again inside one
attempt; nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable

from integrations.coverage.baseline import FILE, message, raise_by, read_baseline, ref_of, written
from integrations.coverage.counts import Report, holds, raised, total
from integrations.coverage.source import ReportConfig, measured
from integrations.coverage.store import Store
from journal.errors import InvalidInputError, JournalError
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, Scalar, evidence

_TRIES = 8
"""Races lost in one attempt before it is left in doubt; each loss means that another task's raise went through."""


class RatchetConfig(ReportConfig):
    """`[steps.ratchet] use = "ratchet"`."""


class Ratchet:
    """Raises the baseline of the base branch, file by file, only up."""

    def __init__(self, config: RatchetConfig, stores: Callable[[str], Store]) -> None:
        self._config, self._stores = config, stores

    @property
    def traits(self) -> Traits:
        return Traits(Guard.EXCLUSIVE, irreversible=True, adopts=True)  # the old value is the guard: no lane needed

    async def probe(self, call: Call) -> Finding:
        try:
            return await self._probe(call)
        except JournalError as error:
            return Finding(Fact.UNKNOWN, _seen(reason="cannot_ask", detail=str(error)[:400]))

    async def apply(self, call: Call) -> Reply:
        try:
            return await self._apply(call)
        except InvalidInputError as error:
            return Reply(Outcome.REJECTED, _seen(reason="bad_report", detail=str(error)[:400]))
        except JournalError as error:
            return Reply(Outcome.UNKNOWN, _seen(reason="store_failed", detail=str(error)[:400]))

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: the compared value makes a late request harmless."""

    async def _probe(self, call: Call) -> Finding:
        store = self._stores(call.subject.repo).within(call)
        if await store.is_shallow():
            return Finding(Fact.UNKNOWN, _seen(reason="shallow"))
        ref = ref_of(call.subject)
        (tip,) = await store.refs(ref)
        made = await raise_by(store, tip, call)
        baseline, ours = await read_baseline(store, tip), await measured(self._config, store, call.subject)
        seen: dict[str, Scalar] = {"ref": ref, "baseline": tip, **_sums(baseline)}
        if made:
            seen |= {"raised": made.commit, "journal": made.journal, "cites": made.cites, "fence": made.fence}
        mine = made is not None and made.journal == call.journal_id
        match mine, holds(baseline, ours):
            case True, True:
                return Finding(Fact.OURS, _seen(**seen))
            case True, False:
                return Finding(Fact.CONFLICT, _seen(reason="lowered_since", **seen))
            case False, True:
                return Finding(Fact.OTHERS, _seen(**seen))
            case _:
                return Finding(Fact.ABSENT, _seen(**seen))

    async def _apply(self, call: Call) -> Reply:
        store = self._stores(call.subject.repo).within(call)
        ref = ref_of(call.subject)
        ours = await measured(self._config, store, call.subject)
        at_s = await store.commit_time_s(call.subject.head)
        for _ in range(_TRIES):
            (tip,) = await store.refs(ref)
            made = await raise_by(store, tip, call)
            if made and made.journal == call.journal_id:
                return Reply(Outcome.UNKNOWN, _seen(reason="key_exists", raised=made.commit))
            baseline = await read_baseline(store, tip)
            if holds(baseline, ours):
                return Reply(Outcome.REJECTED, _seen(reason="nothing_to_raise", baseline=tip))
            higher = raised(baseline, ours)
            if sha := await store.append(ref, tip, FILE, written(higher, call), message(call), at_s):
                return Reply(Outcome.APPLIED, _seen(ref=ref, baseline=sha, before=tip, **_sums(higher)))
        return Reply(Outcome.UNKNOWN, _seen(reason="contended", tries=_TRIES))


def _sums(report: Report) -> dict[str, Scalar]:
    sums = total(report)
    return {
        "lines": f"{sums.lines.covered}/{sums.lines.total}",
        "branches": f"{sums.branches.covered}/{sums.branches.total}",
    }


def _seen(**seen: Scalar) -> tuple[tuple[str, Scalar], ...]:
    return evidence(source="coverage", **{name: value for name, value in seen.items() if value != ""})
