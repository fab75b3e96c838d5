"""
`merge_pr` through the forge's merge call (DESIGN 6; PROTOCOL 4.7; gitea.md 1, 3.3).

The far side refuses a second one: the call names the head it may merge, and a base that moved meanwhile refuses the
push. The call is neither idempotent nor atomic, so no reply settles anything: git does, then the pull request's record.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from integrations.gitea.client import Forge, Response
from integrations.gitea.flights import Flights
from integrations.gitea.history import History
from integrations.gitea.pulls import UnansweredError, pulls_path, read_pull
from integrations.gitea.replies import Claim, Verdict, classify
from journal import names
from journal.errors import InvalidInputError
from journal.ports import Call, Clock, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, Scalar, evidence

PAUSE_S = (1.0, 30.0)
"""First and longest pause between two calls of one attempt; doubles (E11)."""
LOOK_S = 5.0
"""Seconds of the budget kept for closing an attempt."""
_NOT_CALLED = Response(0, sent=False)


class GiteaMergeConfig(BaseModel):
    """`[steps.merge_pr] use = "gitea-merge"`. Only styles whose message can carry our mark (R18, R19)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    style: Literal["merge", "squash"] = "merge"
    # The server's own git timeout, or longer: within it a call that was cut off may still move the branch.
    settle_s: float = Field(default=60.0, ge=0, le=3600)
    # A merge of a large repository takes minutes; hanging up early is what orphans merges (gitea.md 1.2).
    reply_s: float = Field(default=120.0, gt=0, le=3600)


class GiteaMerge:
    """Merges a task's pull request, once per key."""

    def __init__(self, config: GiteaMergeConfig, forge: Forge, history: History, clock: Clock) -> None:
        self._config, self._forge, self._history, self._clock = config, forge, history, clock
        self._flights = Flights(clock, config.settle_s)
        self._scheduled: set[str] = set()  # keys that the forge says it will merge some time

    @property
    def traits(self) -> Traits:
        return Traits(Guard.EXCLUSIVE, irreversible=True, adopts=True, lane="merge:{repo}/{base}")

    async def probe(self, call: Call) -> Finding:
        found = await self._look(call)
        if found.fact in (Fact.OURS, Fact.OTHERS):
            self._flights.forget(call)
            self._scheduled.discard(call.key)
        if found.fact is not Fact.ABSENT:
            return found
        if call.anchor and call.key in self._scheduled:
            return _with(found, Fact.UNKNOWN, reason="scheduled")  # it lands whenever the forge likes (R07)
        if left_s := self._flights.left_s(call):
            return _with(found, Fact.UNKNOWN, reason="may_still_land", for_s=left_s)
        return found

    async def apply(self, call: Call) -> Reply:
        ends_s = self._clock.monotonic_s() + call.budget_s - LOOK_S
        pause_s, calls = PAUSE_S[0], 0
        while True:
            verdict, reply = await self._once(call, ends_s)
            calls += reply.sent
            if verdict.claim is not Claim.AGAIN:
                break
            wait_s = float(verdict.wait_s or pause_s)
            if self._clock.monotonic_s() + wait_s > ends_s:
                break
            await self._clock.sleep(wait_s)
            pause_s = min(pause_s * 2, PAUSE_S[1])
        if verdict.claim is Claim.SCHEDULED:
            self._scheduled.add(call.key)
        seen = evidence(
            source="gitea",
            reason=verdict.reason,
            status=reply.status,
            said=reply.message[:300],  # kept beside the reason: the next version may word it anew (R15)
            calls=calls,
            style=self._config.style,
        )
        return Reply(_outcome(verdict, calls), seen)

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: the far side refuses a second one; the probe waits for what may still land."""

    async def _look(self, call: Call) -> Finding:
        """Ask git afresh, after the record: what the record calls landed must then be there."""
        try:
            pull = await read_pull(self._forge, call.subject)
        except (UnansweredError, InvalidInputError) as error:
            # Git alone can still say yes. Its "no" is not enough: a mark that was edited away only the record knows.
            found = await self._history.landed(call)
            return _with(found, Fact.UNKNOWN, reason="no_record", detail=str(error)[:300]) if _open(found) else found
        found = await self._history.landed(call, pull.landed if pull.merged else "", pull.number)
        if _open(found) and pull.merged and not pull.landed:
            return _with(found, Fact.UNKNOWN, reason="landed_id_missing", pr=pull.number)  # R21
        state = "merged" if pull.merged else "open" if pull.is_open else "closed"
        return _with(found, found.fact, pr=pull.number, pr_state=state, api_head=pull.head)

    async def _once(self, call: Call, ends_s: float) -> tuple[Verdict, Response]:
        """Look, then call, and say what came of it. Each resend is looked at first (E11)."""
        found = await self._look(call)
        if refusal := _before(call, found):
            return refusal, _NOT_CALLED
        left_s = min(self._config.reply_s, ends_s - self._clock.monotonic_s())
        if left_s <= 0:
            return Verdict(Claim.AGAIN, "no_time_left"), _NOT_CALLED
        self._flights.began(call)
        cut_off = True
        try:
            number = int(dict(found.seen)["pr"] or 0)
            path = f"{pulls_path(call.subject.repo)}/{number}/merge"
            reply = await self._forge.send("POST", path, self._body(call, number), left_s)
            verdict = classify(reply)
            cut_off = not verdict.ended
        finally:
            # Also when the run is cancelled in the middle: hanging up does not stop the server.
            (self._flights.cut_off if cut_off else self._flights.ended)(call)
        return verdict, reply

    def _body(self, call: Call, number: int) -> dict[str, Any]:
        """No merge-later and no branch deletion: the first has no end, the second hides a merge that succeeded (E7)."""
        subject = call.subject
        return {
            "Do": self._config.style,
            "MergeTitleField": f"Merge {subject.branch} into {subject.base} (#{number})",
            "MergeMessageField": self._history.trailers(call),
            "head_commit_id": names.commit_id(subject.head),
            "merge_when_checks_succeed": False,
            "delete_branch_after_merge": False,
        }


def _before(call: Call, found: Finding) -> Verdict | None:
    """Why no call may be made now; None when it may. Nothing has been sent here."""
    seen, head = dict(found.seen), call.subject.head
    if found.fact is Fact.UNKNOWN:
        return Verdict(Claim.AGAIN, str(seen.get("reason") or "unknown"))
    if found.fact is not Fact.ABSENT:
        return Verdict(Claim.DOUBT, f"already_{found.fact}")
    if seen.get("pr_state") == "closed":
        return Verdict(Claim.REFUSED, "closed")
    if seen.get("branch_at") != head:
        return Verdict(Claim.REFUSED, "head_moved")  # R08: back to review, never a try with the new head
    if seen.get("api_head") != head:
        return Verdict(Claim.AGAIN, "api_head_lags")  # R09
    return None


def _outcome(verdict: Verdict, calls: int) -> Outcome:
    if verdict.claim is Claim.MERGED:
        return Outcome.APPLIED
    if verdict.claim is Claim.REFUSED or (not calls and verdict.claim is Claim.AGAIN):
        return Outcome.REJECTED
    return Outcome.UNKNOWN


def _open(found: Finding) -> bool:
    return found.fact in (Fact.ABSENT, Fact.UNKNOWN)


def _with(found: Finding, fact: Fact, **more: Scalar) -> Finding:
    return Finding(fact, tuple(sorted({**dict(found.seen), **more}.items())))
