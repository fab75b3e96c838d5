"""
Wrong variants of the engine, of the table and of the surroundings (T3, ENGINE 7).

Each must be caught by the explorer, for the reason it is wrong; the survivors are choices and not safety. Always
searched in full: a reduction merges what some mutants break.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from journal.actions import (
    Action,
    Append,
    Apply,
    Busy,
    EndHolder,
    Finished,
    Locked,
    Probe,
    Probed,
    Quiesce,
    Quiet,
    Read,
    Replied,
    Result,
    TakeLock,
    Unlock,
)
from journal.doubt import TABLE, Row, Table, Verdict
from journal.engine import next_action
from journal.events import Acquired, Applied, Rejected, Released, StageMoved
from journal.learn import learn
from journal.ports import Finding, Reply
from journal.run import Run
from journal.words import Ending, Fact, Guard, Kind, Outcome
from recovery.prove.world import Bounds, Config, Learn, NextAction
from tests.property.worlds import DEPLOY_ALONE, ONE_CRASH, B, E, F, P, R, edge, one, step, two

REJECTED = Reply(Outcome.REJECTED)


def rewritten(change: Callable[[Run, Action], Action]) -> NextAction:
    return lambda run: change(run, next_action(run))


def with_cells(row: Row | None, fact: Fact, guard: Guard, verdict: Verdict) -> NextAction:
    """A table with some cells changed; no row = in every row."""
    rows = [row] if row else list(Row)
    table: Table = TABLE | {(r, fact, guard): verdict for r in rows if (r, fact, guard) in TABLE}
    return partial(next_action, table=table)


def epoch_in_key(run: Run, a: Action) -> Action:
    if isinstance(a, Apply):
        return Apply(a.step, (a.key[0], f"{a.key[1]}/{run.epoch}"), a.fence)
    return a


def no_quiesce(run: Run) -> Action:
    a = next_action(run)
    return next_action(run._replace(quiet=True)) if isinstance(a, Quiesce) else a


def probe_then_quiesce(run: Run) -> Action:
    a = next_action(run._replace(quiet=True))
    if isinstance(a, Append) and a.drafts[-1].kind is Kind.INTENDED and run.view.attempts and not run.quiet:
        current = run.view.current
        assert current is not None
        return Quiesce(current, (run.epoch, run.view.attempts + 1))
    return a


def fence_as(pick: Callable[[tuple[int, int]], tuple[int, int]]) -> NextAction:
    def change(_: Run, a: Action) -> Action:
        if isinstance(a, Apply):
            return Apply(a.step, a.key, pick(a.fence))
        return Quiesce(a.step, pick(a.fence)) if isinstance(a, Quiesce) else a

    return rewritten(change)


def probe_first(run: Run) -> Action:
    """Read, quiesce and probe before the lock and the epoch are taken, and believe it afterwards."""
    if run.epoch or run.ending or run.locked or run.busy is not None or run.ended:
        return next_action(run)
    if run.state is None:
        return Read()
    s = run.state
    if run.probed is None and s.open and s.current is not None:
        return Probe(s.current) if run.quiet else Quiesce(s.current, (s.epoch + 1, s.attempts + 1))
    return next_action(run)


def keep_finding(run: Run, did: Action, got: Result) -> Run:
    after = learn(run, did, got)
    if isinstance(did, Append) and did.drafts[-1].kind is Kind.ACQUIRED and after.epoch:
        return after._replace(probed=run.probed, quiet=run.quiet, waits=1 if run.probed else 0)
    return after


def exception_is_refusal(run: Run, did: Action, got: Result) -> Run:
    unknown = isinstance(got, Replied) and got.reply.outcome is Outcome.UNKNOWN
    return learn(run, did, Replied(REJECTED) if unknown else got)


def believes(outcome: Outcome) -> Learn:
    """A reply counts without a probe."""

    def change(run: Run, did: Action, got: Result) -> Run:
        after = learn(run, did, got)
        if not isinstance(got, Replied) or got.reply.outcome is not outcome:
            return after
        current = run.view.current
        assert current is not None
        body = Applied("apply") if outcome is Outcome.APPLIED else Rejected()
        return after._replace(pending=(run.draft(body, current.name, run.view.attempts),), claim=None)

    return change


def lock_at_send(run: Run) -> Action:
    """The lock is asked for at takeover and held only while sending."""
    if run.epoch and run.locked and not run.armed and not run.ending:
        return Unlock()
    return TakeLock() if run.armed and not run.locked else next_action(run)


def busy_is_free(run: Run, did: Action, got: Result) -> Run:
    return learn(run, did, Locked() if isinstance(got, Busy) else got)


def overdue_defers(_: Run, a: Action) -> Action:
    return Finished(Ending.DEFERRED) if isinstance(a, EndHolder) else a


def forced_takeover(run: Run) -> Action:
    """The holder was told to go and hangs on; drive all the same instead of parking."""
    a = next_action(run)
    if isinstance(a, Append) and not run.epoch and not run.locked and a.drafts[0].kind is Kind.ACQUIRED:
        return Append(a.expect, a.drafts[:1])
    return a


def no_unlock(run: Run, a: Action) -> Action:
    return Finished(run.ending) if isinstance(a, Unlock) and run.ending else a


def stage_on_reply(run: Run, a: Action) -> Action:
    s = run.state
    if run.epoch and s is not None and s.open and not run.armed and not run.pending and s.plan is not None:
        moved = StageMoved(s.plan.source, s.plan.target, s.plan.final)
        return Append(s, (run.draft(moved), run.draft(Released(Ending.ADVANCED))))
    return a


def epoch_reused(_: Run, a: Action) -> Action:
    """The next epoch is the current one, as if releasing gave it back."""
    if isinstance(a, Append) and isinstance(a.drafts[0].body, Acquired) and a.expect.epoch:
        drafts = tuple(d.__class__(d.body, a.expect.epoch, d.generation, d.actor) for d in a.drafts)
        return Append(a.expect, drafts)
    return a


def intent_after_effect(run: Run) -> Action:
    """Send first, write the intent when the reply is there."""
    a = next_action(run)
    if isinstance(a, Append) and a.drafts[-1].kind is Kind.INTENDED and run.claim is None:
        current = run.view.current
        assert current is not None
        return Apply(current, (run.view.generation, current.name), (run.epoch, run.view.attempts + 1))
    return a


def late_intent(run: Run, did: Action, got: Result) -> Run:
    if isinstance(got, Replied) and not run.armed:
        return run._replace(claim=got.reply.outcome)
    after = learn(run, did, got)
    if isinstance(did, Append) and did.drafts[-1].kind is Kind.INTENDED and after.epoch:
        return after._replace(armed=False, claim=run.claim)
    return after


def retries_blindly(run: Run, did: Action, got: Result) -> Run:
    """A timeout is taken for a reason to send the same attempt again."""
    if isinstance(got, Replied) and got.reply.outcome is Outcome.UNKNOWN and run.armed and run.waits == 0:
        return run._replace(waits=1)
    return learn(run, did, got)


def cancel_ignored(run: Run) -> Action:
    """A run that carried a cancelled task over its doubt goes on with the next step."""
    if run.epoch and not run.ending and run.state is not None and run.state.cancel:
        return next_action(run._replace(state=run.state._replace(cancel=False)))
    return next_action(run)


def expecting(a_next: NextAction) -> NextAction:
    """A mutant that lies about the state it decides from still has to compare with the real one."""

    def change(run: Run) -> Action:
        a = a_next(run)
        return Append(run.state, a.drafts) if isinstance(a, Append) and run.state is not None else a

    return change


def split_outcome(run: Run, a: Action) -> Action:
    """The outcome in one transaction, the stage or the next intent in another: safe, but a commit more a step."""
    if isinstance(a, Append) and run.pending and a.drafts != run.pending:
        return Append(a.expect, run.pending)
    return a


def no_first_probe(run: Run) -> Action:
    current = run.view.current if run.epoch and not run.ending else None
    if current and current.guard is not Guard.AWAITED and not run.view.attempts and run.probed is None:
        return next_action(run._replace(probed=Probed(Finding(Fact.ABSENT))))
    return next_action(run)


def no_quiesce_after_refusal(run: Run) -> Action:
    return next_action(run if not run.epoch or run.ending or run.view.open else run._replace(quiet=True))


def suspects_are_dead(run: Run, did: Action, got: Result) -> Run:
    """A silent host is taken for a dead one."""
    return learn(run, did, Quiet() if isinstance(got, Quiet) else got)


def doubt_ends_with_a_term(run: Run, did: Action, got: Result) -> Run:
    """Asked is who owned the task last, not who began the attempt: the one that doubted says nothing ill of itself."""
    forgets = isinstance(got, Quiet) and run.state is not None and run.state.looks > 0
    return learn(run, did, Quiet() if forgets else got)


class Mutant(NamedTuple):
    """What is wrong, and the words in which the explorer must say so."""

    cfg: Config
    reason: str


NO_CRASH = Bounds()
POWER = Bounds(power_cut=1)
LIES = Bounds(suspicion=1)
DEPLOYS = Bounds(crash=1, external=1)

MUTANTS: dict[str, Mutant] = {
    "epoch in the key": Mutant(Config(one(E), ONE_CRASH, next_action=rewritten(epoch_in_key)), "double"),
    "probe before the lock and the epoch": Mutant(
        Config(one(P), ONE_CRASH, next_action=probe_first, learn=keep_finding), "double"
    ),
    "an exception is a refusal, exclusive": Mutant(Config(one(E), learn=exception_is_refusal), "false: x#"),
    "an exception is a refusal, blind": Mutant(Config(one(B), learn=exception_is_refusal), "false: "),
    "a refusal is believed without a probe": Mutant(
        Config(one(P), Bounds(false_refusal=1), learn=believes(Outcome.REJECTED)), "false: rejected x#1"
    ),
    "a success is believed without a probe": Mutant(
        Config(one(P), Bounds(early_claim=1), learn=believes(Outcome.APPLIED)), "false: applied x without"
    ),
    "lock held only while sending": Mutant(Config(one(P), NO_CRASH, next_action=lock_at_send), "double"),
    "a busy lock is taken for free": Mutant(Config(one(P), NO_CRASH, learn=busy_is_free), "double"),
    "unknown treated as absent": Mutant(
        Config(one(P), next_action=with_cells(Row.OPEN, Fact.UNKNOWN, P, Verdict.DRIVE)), "inadmissible: I11"
    ),
    "no compare-and-swap": Mutant(Config(one(P), compares=False), "inadmissible: I4"),
    "probed re-driven without drain": Mutant(Config(one(P), next_action=no_quiesce), "double"),
    "fence never installed": Mutant(Config(one(F), next_action=no_quiesce), "double"),
    "fence installed after the probe": Mutant(Config(one(F), next_action=probe_then_quiesce), "double"),
    "fence is the epoch alone": Mutant(Config(one(F), next_action=fence_as(lambda f: (f[0], 0))), "double"),
    "the lock lies, probed": Mutant(Config(one(P), LIES, lock_holds=False), "double"),
    "blind re-driven after doubt": Mutant(
        Config(one(B), next_action=with_cells(Row.OPEN, Fact.UNKNOWN, B, Verdict.DRIVE)), "inadmissible: I11"
    ),
    "NORMAL and a power cut, probed": Mutant(Config(one(P), POWER, full_sync=False), "double"),
    "NORMAL and a power cut, blind": Mutant(Config(one(B), POWER, full_sync=False), "double"),
    "NORMAL and a power cut, fenced": Mutant(Config(one(F), POWER, full_sync=False), "double"),
    "another's deploy converges": Mutant(
        Config((DEPLOY_ALONE,), DEPLOYS, next_action=with_cells(None, Fact.OTHERS, E, Verdict.CONVERGE)),
        "false: applied deploy_init without",
    ),
    "initiated counts as running": Mutant(
        Config(
            (DEPLOY_ALONE,), Bounds(crash=1), next_action=with_cells(None, Fact.ABSENT, Guard.AWAITED, Verdict.CONVERGE)
        ),
        "false: applied deploy_verified without",
    ),
    "stage moved on any reply": Mutant(Config(one(E), next_action=rewritten(stage_on_reply)), "inadmissible: I13"),
    "unlock forgotten": Mutant(
        Config(
            (edge(step("x", E), final=False), edge(step("y", R), source="b", target="c")),
            NO_CRASH,
            next_action=rewritten(no_unlock),
        ),
        "stuck",
    ),
    "an overdue holder is only deferred to": Mutant(
        Config(one(E), Bounds(freeze=1), next_action=rewritten(overdue_defers)), "stuck"
    ),
    "driving beside a holder that hangs on": Mutant(
        Config(one(P), Bounds(suspicion=1), next_action=forced_takeover), "double"
    ),
    "an epoch is used again": Mutant(Config(one(P), next_action=rewritten(epoch_reused)), "inadmissible: I4"),
    "the intent is written after the effect": Mutant(
        Config(one(P), next_action=intent_after_effect, learn=late_intent), "landed without its intent"
    ),
    "the same attempt is sent again": Mutant(Config(one(P), learn=retries_blindly), "double"),
    "a stale clone is probed": Mutant(Config(one(P), Bounds(lag=2)), "double"),
    "a restored journal drives": Mutant(
        Config(one(P), Bounds(restore=1), next_action=with_cells(Row.FRESH, Fact.OURS, P, Verdict.DRIVE)), "double"
    ),
    "a suspect's probed step is driven": Mutant(Config(one(P), LIES, hosts=True, learn=suspects_are_dead), "double"),
    "a suspect's fence is not installed": Mutant(Config(one(F), LIES, hosts=True, next_action=no_quiesce), "double"),
    "the doubt about a host ends with a term": Mutant(
        Config(one(P), LIES, hosts=True, learn=doubt_ends_with_a_term), "double"
    ),
    "a cancel is ignored": Mutant(
        Config(two(P, E), Bounds(crash=1, cancel=1), next_action=expecting(cancel_ignored)),
        "intended after a cancel",
    ),
}

SURVIVORS: dict[str, Config] = {
    "fence is the attempt alone": Config(one(F), LIES, next_action=fence_as(lambda f: (0, f[1]))),
    "outcome and next intent in two transactions": Config(
        two(E, R), Bounds(crash=1), next_action=rewritten(split_outcome)
    ),
    "no quiesce after a refusal": Config(one(P), Bounds(crash=1, refusal=2), next_action=no_quiesce_after_refusal),
    "repeatable, the lock lies": Config(one(R), LIES, lock_holds=False),
    "exclusive, the lock lies": Config(one(E), LIES, lock_holds=False),
    "fenced, the lock lies": Config(one(F), LIES, lock_holds=False),
    "blind, the lock lies": Config(one(B), LIES, lock_holds=False),
    "NORMAL and a power cut, exclusive": Config(one(E), POWER, full_sync=False),
    "no probe before the first attempt, exclusive": Config(
        one(E), Bounds(crash=1, external=1), next_action=no_first_probe
    ),
    "no probe before the first attempt, probed": Config(one(P), ONE_CRASH, next_action=no_first_probe),
    "no probe before the first attempt, deploy": Config((DEPLOY_ALONE,), DEPLOYS, next_action=no_first_probe),
    "the deployer never ends its owner": Config((DEPLOY_ALONE,), LIES, deploy_kills=False),
    "an exception is a refusal, probed": Config(one(P), ONE_CRASH, learn=exception_is_refusal),
    "exclusive, restored without a floor": Config(one(E), Bounds(crash=1, restore=1), floor=False),
}
