"""
The far sides: what each guard promises, how requests travel, and which landings must never be (I23, E6).

Pure functions of a world. Requests may be dropped, delayed for ever, outlive their sender, and lose their reply.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.engine import Apply
from journal.plan import StepPlan
from journal.state import TaskState
from journal.words import Fact, Guard, Hold, Outcome
from recovery.prove.world import Config, Request, Side, Violation, World

TWICE_ALLOWED = frozenset({Guard.REPEATABLE, Guard.AWAITED})


def with_side(w: World, n: int, side: Side) -> World:
    return w._replace(sides=(*w.sides[:n], side, *w.sides[n + 1 :]))


def with_net(w: World, *requests: Request) -> World:
    return w._replace(net=tuple(sorted(requests)))


def without(w: World, r: Request) -> World:
    k = w.net.index(r)
    return w._replace(net=w.net[:k] + w.net[k + 1 :])


def only_remote(w: World) -> World:
    """The local children are gone; what has left this machine stays."""
    return w._replace(net=tuple(r for r in w.net if r.remote))


def forget_sender(w: World, sender: str) -> World:
    """Nobody waits for the replies any more, so whose they were tells nothing."""
    return with_net(w, *(r._replace(sender="") if r.sender == sender else r for r in w.net))


def fact_of(side: Side, step: StepPlan) -> Fact:
    """What a probe sees that tells the truth."""
    if step.guard is Guard.BLIND:
        return Fact.UNKNOWN
    return Fact.OURS if side.landed else Fact.OTHERS if side.other else Fact.ABSENT


def request_of(apply: Apply, n: int, attempt: int, sender: str) -> Request:
    """An attempt as its far side reads it."""
    step, key, fence = apply.step, apply.key, apply.fence
    exclusive, fenced = step.guard is Guard.EXCLUSIVE, step.guard is Guard.FENCED
    return Request(
        remote=False,
        step=n,
        attempt=attempt,
        key="/".join(map(str, key)) if exclusive else "",
        fence=fence if fenced else (0, 0),
        sender=sender,
    )


def land(cfg: Config, w: World, r: Request) -> tuple[World, Outcome]:
    """
    Let a request arrive; its reply may still be lost.

    Raises:
        Violation: It lands and must not: a second time, or after the journal said that it never would.
    """
    side, step = w.sides[r.step], cfg.steps[r.step]
    if step.guard is Guard.EXCLUSIVE and (r.key in side.keys or side.other):
        return w, Outcome.UNKNOWN  # "already there" is no proof of whose it is
    if step.guard is Guard.FENCED and r.fence < side.fence:
        return w, Outcome.REJECTED
    if side.landed and step.guard not in TWICE_ALLOWED:
        raise Violation(f"double: {step.name} landed twice")
    if w.left.restore == cfg.bounds.restore:  # a restored journal counts attempts anew
        _check_history(cfg, w.task, step, r.attempt)
    keys = tuple(sorted({*side.keys, r.key})) if r.key else side.keys
    x = with_side(w, r.step, Side(r.attempt, keys, max(side.fence, r.fence), side.other))
    if step.ends_owner:  # the deployer will end whoever asked; should it fail to, the asker's own deadline comes
        return x._replace(doom=cfg.deploy_kills), Outcome.UNKNOWN
    return x, Outcome.APPLIED


def _check_history(cfg: Config, t: TaskState, step: StepPlan, attempt: int) -> None:
    """What the journal said about this attempt must stay true."""
    if step.guard in TWICE_ALLOWED or step.name in t.closed:
        return
    if t.hold is Hold.CANCELED:
        raise Violation(f"false: {step.name} landed after the task was canceled")
    if t.plan is not None and step in t.plan.steps and t.stage == t.plan.on_failure != t.plan.source:
        raise Violation(f"false: {step.name} landed after the task was rolled back")
    if t.current == step and t.attempts < max(attempt, 1) and cfg.full_sync:
        raise Violation(f"false: {step.name}#{attempt} landed without its intent")
    if t.current == step and t.attempts == attempt and not t.open:
        raise Violation(f"false: {step.name}#{attempt} was recorded as not applied and landed")


def comes_true(cfg: Config, w: World) -> Iterator[tuple[str, World]]:
    """An awaited fact follows by itself once every effect before it is there."""
    for n, step in enumerate(cfg.steps):
        if step.guard is Guard.AWAITED:
            if not w.sides[n].there and all(s.there for s in w.sides[:n]):
                yield f"{step.name} comes true", with_side(w, n, Side(landed=1))
