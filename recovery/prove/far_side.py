"""The far sides: what each guard promises when a request arrives, and what a probe sees (PROTOCOL 2, 6)."""

from __future__ import annotations

from collections.abc import Iterator

from journal.actions import (
    Apply,
)
from journal.words import Fact, Guard, Outcome
from recovery.prove.truth import TWICE_ALLOWED, check_landing
from recovery.prove.world import Config, Move, Request, Side, Violation, World, with_side


def fact_of(side: Side, guard: Guard) -> Fact:
    """What a probe sees that tells the truth."""
    if guard is Guard.BLIND:
        return Fact.UNKNOWN
    return Fact.OURS if side.landed else Fact.OTHERS if side.other else Fact.ABSENT


def request_of(apply: Apply, guard: Guard, n: int, attempt: int, sender: str, host: int) -> Request:
    """An attempt as its far side reads it."""
    key, fence = apply.key, apply.fence
    exclusive, fenced = guard is Guard.EXCLUSIVE, guard is Guard.FENCED
    return Request(
        remote=False,
        step=n,
        attempt=attempt,
        key="/".join(map(str, key)) if exclusive else "",
        fence=fence if fenced else (0, 0),
        sender=sender,
        host=host,
    )


def land(cfg: Config, w: World, r: Request) -> tuple[World, Outcome]:
    """
    Let a request arrive; its reply may still be lost.

    Raises:
        Violation: It lands and must not: a second time, or after the journal said that it never would.
    """
    side, step = w.sides[r.step], cfg.steps[r.step]
    guard = cfg.guard(step)
    if guard is Guard.EXCLUSIVE and (r.key in side.keys or side.other):
        return w, Outcome.UNKNOWN  # "already there" is no proof of whose it is
    if guard is Guard.FENCED and r.fence < side.fence:
        return w, Outcome.REJECTED
    if side.landed and guard not in TWICE_ALLOWED:
        raise Violation(sort="double", what=f"{step.name} landed twice")
    check_landing(cfg, w, step, r.attempt)
    keys = tuple(sorted({*side.keys, r.key})) if r.key else side.keys
    x = with_side(w, r.step, Side(r.attempt, keys, max(side.fence, r.fence), side.other))
    if step.ends_owner:  # the deployer will end whoever asked; should it fail to, the asker's own deadline comes
        return x._replace(doom=cfg.deploy_kills), Outcome.UNKNOWN
    return x, Outcome.APPLIED


def comes_true(cfg: Config, w: World) -> Iterator[Move]:
    """An awaited fact follows by itself once every effect before it is there."""
    for n, step in enumerate(cfg.steps):
        if step.guard is Guard.AWAITED and not w.sides[n].there and all(s.there for s in w.sides[:n]):
            yield f"{step.name} comes true", False, with_side(w, n, Side(landed=1))
