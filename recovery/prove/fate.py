"""What befalls the actors: deploys, power cuts, people outside, restored backups, and the operator's verbs."""

from __future__ import annotations

from collections.abc import Iterator

from journal.doubt import row_of
from journal.events import Body, Canceled, CancelRequested, Draft, Observed, Paused, Resumed, Settled
from journal.plan import StepPlan
from journal.words import Fact, Guard, Hold
from recovery.prove.truth import admitted
from recovery.prove.world import NOBODY, Config, Move, World, kill, only_remote, spend, with_side, with_task


def misfortunes(cfg: Config, w: World) -> Iterator[Move]:
    """Whatever ends all processes at once, and what somebody outside the journal does."""
    everybody = range(len(w.actors))
    if w.doom:
        yield "the deploy restarts the service", False, kill(w, *everybody)._replace(doom=False)
    if w.left.external:
        for n, s in enumerate(cfg.steps):
            if not w.sides[n].there and cfg.guard(s) not in (Guard.BLIND, Guard.AWAITED):
                x = with_side(spend(w, "external"), n, w.sides[n]._replace(other=True))
                yield f"somebody else does {s.name}", True, x
    if w.left.power_cut:
        x = only_remote(kill(spend(w, "power_cut"), *everybody))
        yield "power cut", True, x if w.durable is None else x._replace(task=w.durable)
    if w.durable is not None and w.durable != w.task:
        yield "sync", False, w._replace(durable=w.task)
    if w.left.restore:
        yield from _backups(cfg, w)


def _backups(cfg: Config, w: World) -> Iterator[Move]:
    if w.saved != w.task:
        yield "a backup is taken", False, w._replace(saved=w.task)
    # Assumed: by the time a copy is restored, nothing that only a probe can find is still on its way.
    if w.saved is not None and all(cfg.guard(cfg.steps[r.step]) is Guard.EXCLUSIVE for r in w.net):
        x = kill(only_remote(spend(w, "restore")), *range(len(w.actors)))
        floor = w.task.epoch if cfg.floor else w.saved.epoch
        yield "the backup is restored", True, x._replace(task=w.saved._replace(epoch=floor), saved=None)


def verbs(cfg: Config, w: World) -> Iterator[Move]:
    """What a person or the reconciler may write while the task is theirs; what they say is true."""
    t = w.task
    if t.hold is Hold.NONE and w.left.pause:
        yield _verb(spend(w, "pause"), "an operator pauses", Paused("reason"))
    if t.hold is Hold.PAUSED:
        yield _verb(w, "an operator resumes", Resumed("reason"))
    if t.hold is Hold.NONE and w.left.cancel and not t.cancel:
        if t.open or t.loose:  # too late for that effect: it is settled first
            yield _verb(spend(w, "cancel"), "an operator asks to cancel", CancelRequested("reason"))
        else:
            yield _verb(spend(w, "cancel"), "an operator cancels", CancelRequested("reason"), Canceled("reason"))
    if t.hold is not Hold.PARKED:
        return
    if w.left.retry:
        yield _verb(spend(w, "retry"), "an operator retries", Resumed("retry"))
    if t.current is not None:
        yield from _settlements(cfg, w, t.current, landed=bool(w.sides[cfg.steps.index(t.current)].landed))


def _settlements(cfg: Config, w: World, step: StepPlan, *, landed: bool) -> Iterator[Move]:
    t = w.task
    if w.left.settle and t.open and not w.net and w.lock == NOBODY:
        word = "applied" if landed else "not applied"
        settled = Settled(landed, "evidence", "reason")
        yield _verb(spend(w, "settle"), f"an operator settles {step.name} as {word}", settled, step=step.name)
    # Only what a probe can tell, and what the journal has an intent for: else X2, and it would park again for ever.
    known = step.guard is Guard.AWAITED or (cfg.guard(step) is not Guard.BLIND and t.attempts > 0)
    if cfg.reconciles and landed and known and not t.owner:
        seen = Observed(row_of(t), Fact.OURS, step.guard, "converge")
        yield _verb(w, f"the reconciler sees {step.name}", seen, step=step.name)


def _verb(w: World, label: str, *bodies: Body, step: str = "") -> Move:
    t = w.task
    drafts = tuple(Draft(b, t.epoch, t.generation, "operator", step, t.attempts if step else 0) for b in bodies)
    return label, False, with_task(w, admitted(t, drafts))
