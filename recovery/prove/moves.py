"""
The rules of the simulated world: every move that is possible in it, the engine's own and the world's (T2, ENGINE 6).

A move is a label, whether it is a misfortune (liveness must not lean on those), and the world after it. Reduced, moves
that nobody else can observe are merged into one.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.admit import admit
from journal.doubt import row_of
from journal.engine import (
    Action,
    Append,
    Appended,
    Apply,
    Ask,
    Asked,
    Busy,
    Ended,
    EndHolder,
    Finished,
    Locked,
    Lost,
    Occupied,
    Probe,
    Probed,
    Quiesce,
    Quiet,
    Read,
    Replied,
    Result,
    Run,
    Seen,
    TakeLock,
    Unlock,
    Unlocked,
    Wait,
    Waited,
)
from journal.errors import InadmissibleError
from journal.events import (
    Applied,
    CancelRequested,
    Draft,
    Intended,
    Observed,
    Owner,
    Paused,
    Rejected,
    Resumed,
    Settled,
    StageMoved,
)
from journal.plan import StepPlan
from journal.ports import Answer, Finding, Reply
from journal.state import TaskState
from journal.words import Fact, Guard, Hold, Kind, Opening, Outcome
from recovery.prove.far_side import (
    TWICE_ALLOWED,
    comes_true,
    fact_of,
    forget_sender,
    land,
    only_remote,
    request_of,
    with_net,
    with_side,
    without,
)
from recovery.prove.minds import Mind, Minds, is_append
from recovery.prove.world import NAMES, NOBODY, Actor, Config, Bounds, Route, Violation, World

Move = tuple[str, bool, World]

APPLIED, REJECTED, UNKNOWN = (Replied(Reply(o)) for o in (Outcome.APPLIED, Outcome.REJECTED, Outcome.UNKNOWN))
FINDINGS = {fact: Finding(fact) for fact in Fact}
ANSWERS = {opening: Asked(Answer(opening)) for opening in Opening}


class Rules:
    """All moves of one configuration."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.steps = cfg.steps
        self.minds = Minds(cfg.next_action, cfg.learn)
        self._place = {s.name: n for n, s in enumerate(cfg.steps)}
        self._route = Route(cfg.plans)
        self._owners = {f"{name}{life}": Owner(f"{name}{life}") for name in NAMES for life in (0, 1)}

    # -- what is possible -------------------------------------------------------------------------------------------

    def moves(self, w: World) -> Iterator[Move]:
        """
        Every move from here.

        Raises:
            Violation: The next move leads where no world may be.
        """
        if not self.settled(w):
            for i in range(len(w.actors)):
                yield from self._actor(w, i)
            yield from self._requests(w)
            yield from ((label, False, x) for label, x in comes_true(self.cfg, w))
            yield from self._misfortunes(w)
        yield from self._operator(w)

    def over(self, w: World) -> bool:
        """The task is where it may stay: at an end, left to a person, or rolled back to a stage without an edge."""
        t = w.task
        return t.ended or t.hold is Hold.PARKED or (not t.owner and self._resting(t))

    def ending(self, w: World) -> str:
        """How it stands with a task that is over."""
        return str(w.task.hold) or "rolled back"

    def settled(self, w: World) -> bool:
        """Nothing can land any more and every append loses: the rest is noise, unless a person comes."""
        if not self.cfg.compares or not self.over(w) or w.net:
            return False
        if w.task.hold is Hold.PARKED and w.left.retry + w.left.settle + self.cfg.reconciles:
            return all(a.mind is None for a in w.actors)
        return not any(a.mind is not None and isinstance(a.mind.action, Apply) for a in w.actors)

    def _resting(self, t: TaskState) -> bool:
        return not t.begun and self._route.edge(t.stage) is None

    # -- actors -----------------------------------------------------------------------------------------------------

    def _actor(self, w: World, i: int) -> Iterator[Move]:
        a, name = w.actors[i], NAMES[i]
        if w.left.crash and (a.mind is not None and (a.mind.run.epoch or a.mind.run.locked) or self._names(w, i)):
            # A crash of somebody who holds nothing and wrote nothing changes nothing.
            yield f"{name} crashes {self._where(a)}", True, self._kill(spend(w, "crash"), i)
        if a.frozen:
            return
        if a.mind is not None:
            if w.left.freeze and i == 0:
                yield (
                    f"{name} freezes {self._where(a)}",
                    True,
                    self._put(spend(w, "freeze"), i, a._replace(frozen=True)),
                )
            yield from self._act(w, i, a, a.mind)
        elif w.task.hold is Hold.NONE and not self._resting(w.task):
            run = Run("worker" if i == 0 else "reaper", self._owners[f"{name}{a.life}"], self._route)
            yield from self._act(w, i, a, self.minds.of(run))

    def _names(self, w: World, i: int) -> bool:
        """Whether the journal calls this process the owner."""
        return w.task.owner == f"{NAMES[i]}{w.actors[i].life}"

    def _where(self, a: Actor) -> str:
        if a.mind is None:
            return "idle"
        return f"{'inside' if a.sent else 'before'} {describe(a.mind.action)}"

    def _act(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        name, action = NAMES[i], mind.action
        if a.sent:  # the budget: the child's process group is ended, what is remote stays
            mine = mind.run.me.run
            x = w._replace(net=tuple(r for r in w.net if r.remote or r.sender != mine))
            yield f"{name} gives up on {describe(action)}", False, self._reply(x, i, UNKNOWN)
            return

        def then(result: Result, x: World = w) -> World:
            return self._put(x, i, a._replace(mind=self.minds.learn(mind, result)))

        match action:
            case TakeLock():
                yield from self._take_lock(w, i, a, mind)
            case EndHolder():
                yield f"{name} ends the holder, which hangs on", False, then(Ended(), only_remote(w))
                if w.lock not in (NOBODY, i) and not w.actors[w.lock].frozen:
                    x = self._kill(only_remote(w), w.lock)
                    yield f"{name} ends the holder", False, then(Ended(), x)
            case Read():
                yield f"{name} reads", False, then(Seen(w.task))
            case Ask():
                yield f"{name} asks the gates: open", False, then(ANSWERS[Opening.OPEN])
                if w.left.shut_gate:
                    for opening in (Opening.CLOSED, Opening.UNKNOWN):
                        yield f"{name} asks the gates: {opening}", True, then(ANSWERS[opening], spend(w, "shut_gate"))
            case Append():
                yield from self._append(w, i, a, mind, action)
            case Quiesce(step=step, fence=fence):
                yield from self._quiesce(w, i, step, fence, then(Quiet()))
            case Probe(step=step):
                for fact, late, fault in self._findings(w, step):
                    word = (
                        f"{name} probes {step.name}: {fact}{', late' if late else ''}{f' ({fault})' if fault else ''}"
                    )
                    yield word, bool(fault), then(Probed(FINDINGS[fact], late), spend(w, fault) if fault else w)
            case Apply(step=step):
                r = request_of(action, self._place[step.name], mind.run.view.attempts, mind.run.me.run)
                x = with_net(w, *w.net, r)
                yield f"{name} sends {step.name}#{r.attempt}", False, self._put(x, i, a._replace(mind=mind, sent=True))
            case Unlock():
                free = w._replace(lock=NOBODY if w.lock == i else w.lock)
                yield f"{name} unlocks", False, then(Unlocked(), free)
            case Wait() | Finished():
                raise AssertionError(action)  # done in _put, at once

    def _take_lock(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        name = NAMES[i]

        def then(result: Result, x: World = w) -> World:
            return self._put(x, i, a._replace(mind=self.minds.learn(mind, result)))

        if w.lock == NOBODY and all(r.remote for r in w.net):
            yield f"{name} locks", False, self._hurry(then(Locked(), w._replace(lock=i)), i)
            return
        if not self.cfg.lock_holds and w.left.suspicion:
            x = spend(w, "suspicion")._replace(lock=i)
            yield f"{name} locks, though it is held", True, then(Locked(), x)
        if mind.run.ended:
            yield f"{name} finds the lock busy still", False, then(Busy(overdue=True))
            return
        yield f"{name} finds the lock busy", False, then(Busy(overdue=False))
        if i and w.lock != NOBODY and w.actors[w.lock].frozen:
            yield f"{name} finds the lock overdue", False, then(Busy(overdue=True))
        elif i and w.left.suspicion:
            yield f"{name} finds the lock overdue", True, then(Busy(overdue=True), spend(w, "suspicion"))

    def _quiesce(self, w: World, i: int, step: StepPlan, fence: tuple[int, int], quiet: World) -> Iterator[Move]:
        n = self._place[step.name]
        if step.guard is Guard.FENCED:
            side = w.sides[n]
            x = with_side(quiet, n, side._replace(fence=max(side.fence, fence)))
            yield f"{NAMES[i]} installs the fence {fence[0]}.{fence[1]}", False, x
        elif all(r.step != n for r in w.net):
            yield f"{NAMES[i]} drains", False, quiet

    def _findings(self, w: World, step: StepPlan) -> Iterator[tuple[Fact, bool, str]]:
        """What a probe may answer: fact, whether past the deadline, and which misfortune that is."""
        true = fact_of(w.sides[self._place[step.name]], step)
        yield true, False, ""
        if step.guard is Guard.BLIND:
            return
        if w.left.bad_probe:
            yield Fact.UNKNOWN, False, "bad_probe"
            yield Fact.CONFLICT, False, "bad_probe"
        if w.left.lag and true in (Fact.OURS, Fact.OTHERS):
            yield Fact.ABSENT, False, "lag"
        if w.left.late and true is Fact.ABSENT:
            yield Fact.ABSENT, True, "late"

    # -- the journal ------------------------------------------------------------------------------------------------

    def _append(self, w: World, i: int, a: Actor, mind: Mind, action: Append) -> Iterator[Move]:
        name = NAMES[i]

        def then(result: Result, x: World = w) -> World:
            return self._put(x, i, a._replace(mind=self.minds.learn(mind, result)))

        if self.cfg.compares and w.task != action.expect:
            yield f"{name} loses the race", False, then(Lost(w.task))
            return
        if w.left.busy_lane and any(d.kind is Kind.INTENDED for d in action.drafts):
            yield f"{name} finds the lane busy", True, then(Occupied("another"), spend(w, "busy_lane"))
        x = self._written(w, mind, action)
        yield f"{name} appends {tell(action.drafts)}", False, self._outdate(then(Appended(x.task), x), i)

    def _written(self, w: World, mind: Mind, action: Append) -> World:
        """Admit and write a unit; each outcome in it must be true, not merely well-formed."""
        if mind.unit is None or mind.unit[0] != w.task:
            try:
                mind.unit = (w.task, admit(w.task, action.drafts))
            except InadmissibleError as e:
                raise Violation(f"inadmissible: {e}") from e
        self._check_truth(w, action.drafts)
        task = mind.unit[1]
        if task.hold is Hold.DONE and not all(self._done(w, n) for n in range(len(self.steps))):
            raise Violation("false: done without every effect")
        return w._replace(task=task)

    def _done(self, w: World, n: int) -> bool:
        side = w.sides[n]
        return bool(side.landed) or (side.other and self.steps[n].adopts)

    def _check_truth(self, w: World, drafts: tuple[Draft, ...]) -> None:
        for d in drafts:
            match d.body:
                case Applied():
                    if not self._done(w, self._place[d.step]):
                        raise Violation(f"false: applied {d.step} without its effect")
                case Intended() if w.task.cancel:
                    raise Violation(f"false: {d.step}#{d.attempt} intended after a cancel was requested")
                case Rejected():
                    if w.sides[self._place[d.step]].landed == d.attempt:
                        raise Violation(f"false: rejected {d.step}#{d.attempt}, which landed")
                case StageMoved(to_stage=to_stage) if w.task.plan is not None and to_stage == w.task.plan.on_failure:
                    for step in w.task.plan.steps:
                        if step.guard not in TWICE_ALLOWED and w.sides[self._place[step.name]].landed:
                            raise Violation(f"false: rolled back though {step.name} landed")
                case _:
                    pass

    # -- the far side -----------------------------------------------------------------------------------------------

    def _requests(self, w: World) -> Iterator[Move]:
        for r in dict.fromkeys(w.net):
            tag, rest = f"{self.steps[r.step].name}#{r.attempt}", without(w, r)
            yield f"{tag} gets lost", False, rest
            if not r.remote:
                yield f"{tag} leaves this machine", False, with_net(w, *rest.net, r._replace(remote=True))
                continue
            x, answer = land(self.cfg, rest, r)
            yield f"{tag} arrives, its reply is lost", False, x
            if not r.sender or w.actors[i := NAMES.index(r.sender[0])].frozen:
                continue
            yield f"{tag} arrives, answer {answer}", False, self._reply(x, i, Replied(Reply(answer)))
            if w.left.refusal:
                yield f"{tag} is refused", True, self._reply(spend(rest, "refusal"), i, REJECTED)
            if w.left.false_refusal and x.sides != w.sides:
                yield f"{tag} arrives, answer rejected", True, self._reply(spend(x, "false_refusal"), i, REJECTED)
            if w.left.early_claim:
                y = spend(with_net(w, *rest.net, r._replace(sender="")), "early_claim")
                yield f"{tag} is claimed before it arrives", True, self._reply(y, i, APPLIED)

    def _reply(self, w: World, i: int, replied: Replied) -> World:
        a = w.actors[i]
        assert a.mind is not None
        x = forget_sender(w, a.mind.run.me.run)
        return self._outdate_one(self._put(x, i, a._replace(mind=self.minds.learn(a.mind, replied), sent=False)), i)

    # -- misfortunes and people -------------------------------------------------------------------------------------

    def _misfortunes(self, w: World) -> Iterator[Move]:
        everybody = range(len(w.actors))
        if w.doom:
            yield "the deploy restarts the service", False, self._kill(w, *everybody)._replace(doom=False)
        if w.left.external:
            for n, s in enumerate(self.steps):
                if not w.sides[n].there and s.guard not in (Guard.BLIND, Guard.AWAITED):
                    x = with_side(spend(w, "external"), n, w.sides[n]._replace(other=True))
                    yield f"somebody else does {s.name}", True, x
        if w.left.power_cut:
            x = only_remote(self._kill(spend(w, "power_cut"), *everybody))
            yield "power cut", True, x if w.durable is None else x._replace(task=w.durable)
        if w.durable is not None and w.durable != w.task:
            yield "sync", False, w._replace(durable=w.task)
        if w.left.restore:
            yield from self._backups(w)

    def _backups(self, w: World) -> Iterator[Move]:
        if w.saved != w.task:
            yield "a backup is taken", False, w._replace(saved=w.task)
        # Assumed: by the time a copy is restored, nothing that only a probe can find is still on its way.
        if w.saved is not None and all(self.steps[r.step].guard is Guard.EXCLUSIVE for r in w.net):
            x = self._kill(only_remote(spend(w, "restore")), *range(len(w.actors)))
            floor = w.task.epoch if self.cfg.floor else w.saved.epoch
            yield "the backup is restored", True, x._replace(task=w.saved._replace(epoch=floor), saved=None)

    def _operator(self, w: World) -> Iterator[Move]:
        t = w.task
        step = t.current.name if t.current else ""
        if t.hold is Hold.NONE and w.left.pause:
            yield self._verb(spend(w, "pause"), "pauses", Paused("reason"))
        if t.hold is Hold.PAUSED:
            yield self._verb(w, "resumes", Resumed("reason"))
        if t.hold is Hold.NONE and w.left.cancel and not t.cancel:
            yield self._verb(spend(w, "cancel"), "asks to cancel", CancelRequested("reason"))
        if t.hold is not Hold.PARKED:
            return
        if w.left.retry:
            yield self._verb(spend(w, "retry"), "retries", Resumed("retry"))
        if t.current is None:
            return
        landed = bool(w.sides[self._place[step]].landed)
        if w.left.settle and t.open and not w.net and w.lock == NOBODY:
            word = "applied" if landed else "not applied"
            yield self._verb(
                spend(w, "settle"), f"settles {step} as {word}", Settled(landed, "evidence", "reason"), step
            )
        if self.cfg.reconciles and landed and not t.owner and self._known(t, t.current):
            body = Observed(row_of(t), Fact.OURS, t.current.guard, "converge")
            yield self._verb(w, f"(the reconciler) sees {step}", body, step)

    @staticmethod
    def _known(t: TaskState, step: StepPlan) -> bool:
        """A reconciler frees only what a probe can tell, and what the journal has an intent for."""
        return step.guard is Guard.AWAITED or (step.guard is not Guard.BLIND and t.attempts > 0)

    def _verb(
        self, w: World, word: str, body: Paused | Resumed | CancelRequested | Settled | Observed, step: str = ""
    ) -> Move:
        t = w.task
        draft = Draft(body, t.epoch, t.generation, "operator", step, t.attempts if step else 0)
        try:
            x = w._replace(task=admit(t, (draft,)))
        except InadmissibleError as e:
            raise Violation(f"inadmissible: {e}") from e
        return f"an operator {word}", False, self._outdate(x, NOBODY)

    # -- what a move does to the actors -----------------------------------------------------------------------------

    def _kill(self, w: World, *which: int) -> World:
        for i in which:
            w = forget_sender(w, f"{NAMES[i]}{w.actors[i].life}")
            w = w._replace(lock=NOBODY if w.lock == i else w.lock)
            w = self._put(w, i, Actor(int(w.task.owner == f"{NAMES[i]}0")))
        return w

    def _put(self, w: World, i: int, a: Actor) -> World:
        """Store an actor; what it does next without touching the world, it does at once."""
        while (mind := a.mind) is not None and not a.sent:
            match mind.action:
                case Finished():
                    a = a._replace(mind=None)
                case Wait():
                    a = a._replace(mind=self.minds.learn(mind, Waited()))
                case Unlock() if self._merges:
                    a = a._replace(mind=self.minds.learn(mind, Unlocked()))
                    w = w._replace(lock=NOBODY if w.lock == i else w.lock)
                case _:
                    break
        return w._replace(actors=(*w.actors[:i], a, *w.actors[i + 1 :]))

    @property
    def _merges(self) -> bool:
        """A frozen actor tells apart what is merged otherwise."""
        return self.cfg.reduced and not self.cfg.bounds.freeze

    def _hurry(self, w: World, i: int) -> World:
        """Lock, read and acquire in one move: nobody else could write in between."""
        while self._merges:
            a = w.actors[i]
            if a.mind is None or a.mind.run.epoch or not isinstance(a.mind.action, Read | Append):
                break
            ((_, _, w),) = self._act(w, i, a, a.mind)
        return w

    def _outdate(self, w: World, writer: int) -> World:
        for i in range(len(w.actors)):
            if i != writer:
                w = self._outdate_one(w, i)
        return w

    def _outdate_one(self, w: World, i: int) -> World:
        """Whose read is stale and who has nothing left to send can only lose: let it lose at once."""
        a = w.actors[i]
        if not self.cfg.reduced or a.mind is None or a.sent or a.frozen:
            return w
        run = a.mind.run
        if run.armed or run.ending or run.state is None or run.state == w.task or not self.cfg.compares:
            return w
        return self._put(w, i, a._replace(mind=self.minds.of(self._lost(a.mind, w.task))))

    def _lost(self, mind: Mind, task: TaskState) -> Run:
        return self.cfg.learn(mind.run, mind.action, Lost(task))


def spend(w: World, what: str) -> World:
    """One misfortune less to come."""
    return w._replace(left=Bounds(*(n - (f == what) for f, n in zip(Bounds._fields, w.left, strict=True))))


def tell(drafts: tuple[Draft, ...]) -> str:
    """A unit of events in a few words."""
    words = []
    for d in drafts:
        tag = f"{d.step}#{d.attempt}" if d.step else str(d.epoch) if d.kind is Kind.ACQUIRED else ""
        words.append(f"{d.kind}({tag})" if tag and d.kind is not Kind.OBSERVED else str(d.kind))
    return "+".join(words)


def describe(action: Action) -> str:
    """An action in a few words, without epochs: the name of a crash point."""
    match action:
        case Append(drafts=drafts):
            last = next((d for d in reversed(drafts) if d.kind is not Kind.RELEASED), drafts[-1])
            return f"append {last.kind}{f' {last.step}' if last.step else ''}"
        case Probe(step=step) | Quiesce(step=step) | Apply(step=step):
            return f"{type(action).__name__.lower()} {step.name}"
        case _:
            return type(action).__name__.lower()
