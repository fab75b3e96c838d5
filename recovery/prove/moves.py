"""
The rules of the simulated world: every move that is possible in it, the engine's own and the world's (T2, ENGINE 6).

A move is a label, whether it is a misfortune (liveness must not lean on those), and the world after it. Reduced, moves
that nobody else can observe are merged into one.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.actions import (
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
    Seen,
    TakeLock,
    Unlock,
    Unlocked,
    Wait,
    Waited,
)
from journal.events import Owner
from journal.plan import StepPlan
from journal.ports import Answer, Finding, Reply
from journal.run import Run
from journal.state import TaskState
from journal.words import Fact, Guard, Hold, Kind, Opening, Outcome, Standing
from recovery.prove import hosts
from recovery.prove.far_side import comes_true, fact_of, land, request_of
from recovery.prove.fate import misfortunes, verbs
from recovery.prove.minds import Mind, Minds
from recovery.prove.telling import describe, tell
from recovery.prove.truth import admitted, check_unit
from recovery.prove.world import (
    NAMES,
    NOBODY,
    Actor,
    Config,
    Move,
    Route,
    World,
    forget_sender,
    kill,
    only_remote,
    spend,
    with_actor,
    with_lock,
    with_net,
    with_side,
    with_task,
    without,
)

APPLIED, REJECTED, UNKNOWN = (Replied(Reply(o)) for o in (Outcome.APPLIED, Outcome.REJECTED, Outcome.UNKNOWN))
FINDINGS = {fact: Finding(fact) for fact in Fact}
ANSWERS = {opening: Asked(Answer(opening)) for opening in Opening}


def alone(w: World) -> Iterator[hosts.Seen]:
    """Who holds the lock that all share knows that nobody else is left."""
    yield "", False, Standing.GONE, w


class Rules:
    """All moves of one configuration."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.steps = cfg.steps
        self.minds = Minds(cfg.next_action, cfg.learn)
        self._place = cfg.place
        self._idle: dict[tuple[int, int], Mind] = {}
        self._route = Route(cfg.plans)
        self._owners = {f"{name}{life}": Owner(f"{name}{life}") for name in NAMES for life in (0, 1)}

    # -- what is possible -------------------------------------------------------------------------------------------

    def moves(self, w: World) -> Iterator[Move]:
        """
        Every move from here.

        Raises:
            Violation: The next move leads where no world may be.
        """
        for movers in self.movers(w):
            yield from movers

    def movers(self, w: World) -> list[Iterator[Move]]:
        """The same by who moves: each actor, the requests, the world, people. A walk asks one of them only."""
        if self.settled(w):
            return [self._people(w)]
        actors = [self._actor(w, i) for i in range(len(w.actors))]
        return [*actors, self._requests(w), comes_true(self.cfg, w), misfortunes(self.cfg, w), self._people(w)]

    def _people(self, w: World) -> Iterator[Move]:
        for label, fault, x in verbs(self.cfg, w):
            yield label, fault, self._outdate(x, NOBODY)

    def over(self, w: World) -> bool:
        """The task is where it may stay: at an end, left to a person, or rolled back to a stage without an edge."""
        t = w.task
        return t.ended or t.hold is Hold.PARKED or (not t.owner and self._resting(t))

    def ending(self, w: World) -> str:
        """How it stands with a task that is over."""
        return str(w.task.hold) or f"at {w.task.stage}"

    def settled(self, w: World) -> bool:
        """Nothing can land any more and every append loses: the rest is noise, unless a person comes."""
        if not self.cfg.compares or not self.over(w) or w.net or w.left.restore:
            return False
        if w.left.power_cut and w.durable is not None:
            return False
        if w.task.hold is Hold.PARKED and w.left.retry + w.left.settle + self.cfg.reconciles:
            return all(a.mind is None for a in w.actors)
        return not any(a.mind is not None and isinstance(a.mind.action, Apply) for a in w.actors)

    def _resting(self, t: TaskState) -> bool:
        return not t.begun and self._route.edge(t.stage) is None

    # -- actors -----------------------------------------------------------------------------------------------------

    def _actor(self, w: World, i: int) -> Iterator[Move]:
        a, name = w.actors[i], NAMES[i]
        holds = a.mind is not None and (a.mind.run.epoch or a.mind.run.locked)
        if w.left.crash and (holds or self._names(w, i)):  # else a crash changes nothing
            yield f"{name} crashes {self._where(w, a)}", True, kill(spend(w, "crash"), i)
        if a.frozen:
            return
        if a.mind is not None:
            if w.left.freeze and i == 0:
                yield (
                    f"{name} freezes {self._where(w, a)}",
                    True,
                    self._put(spend(w, "freeze"), i, a._replace(frozen=True)),
                )
            yield from self._act(w, i, a, a.mind)
        elif w.task.hold is Hold.NONE and not self._resting(w.task):
            yield from self._act(w, i, a, self._beginning(i, a.life))

    def _beginning(self, i: int, life: int) -> Mind:
        """What a process has in mind when it begins with the task."""
        mind = self._idle.get((i, life))
        if mind is None:
            run = Run("worker" if i == 0 else "reaper", self._owners[f"{NAMES[i]}{life}"], self._route)
            mind = self._idle[i, life] = self.minds.of(run)
        return mind

    def _names(self, w: World, i: int) -> bool:
        """Whether the journal calls this process the owner."""
        return w.task.owner == f"{NAMES[i]}{w.actors[i].life}"

    def _where(self, w: World, a: Actor) -> str:
        """The name of a crash point."""
        if a.mind is None:
            return "idle"
        action = a.mind.action
        if not a.sent or not isinstance(action, Apply):
            return f"before {describe(action)}"
        there = w.sides[self._place[action.step.name]].landed
        return f"inside {describe(action)}, {'after' if there else 'before'} the effect"

    def _act(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        name, action = NAMES[i], mind.action
        if a.sent:  # the budget: the child's process group is ended, what is remote stays
            mine = mind.run.me.run
            x = with_net(w, (r for r in w.net if r.remote or r.sender != mine))
            yield f"{name} gives up on {describe(action)}", False, self._reply(x, i, UNKNOWN)
            return

        def then(result: Result, x: World = w) -> World:
            return self._put(x, i, Actor(a.life, self.minds.learn(mind, result), a.sent, a.frozen))

        match action:
            case TakeLock():
                yield from self._take_lock(w, i, a, mind)
            case EndHolder():
                yield f"{name} ends the holder, which hangs on", False, then(Ended(), only_remote(w))
                if w.lock not in (NOBODY, i) and not w.actors[w.lock].frozen:
                    x = kill(only_remote(w), w.lock)
                    yield f"{name} ends the holder", False, then(Ended(), x)
            case Read():
                yield from self._read(w, i, a, mind)
            case Ask():
                yield f"{name} asks the gates: open", False, then(ANSWERS[Opening.OPEN])
                if w.left.shut_gate:
                    for opening in (Opening.CLOSED, Opening.UNKNOWN):
                        yield f"{name} asks the gates: {opening}", True, then(ANSWERS[opening], spend(w, "shut_gate"))
            case Append():
                yield from self._append(w, i, a, mind, action)
            case Quiesce(step=step, fence=fence):
                yield from self._quiesce(w, i, a, mind, step, fence)
            case Probe(step=step):
                for fact, late, fault in self._findings(w, step):
                    word = (
                        f"{name} probes {step.name}: {fact}{', late' if late else ''}{f' ({fault})' if fault else ''}"
                    )
                    x = then(Probed(FINDINGS[fact], late), spend(w, fault) if fault else w)
                    yield from self._at_once(x, i, word, bool(fault))
            case Apply(step=step):
                n, host = self._place[step.name], i if self.cfg.hosts else NOBODY
                r = request_of(action, self.cfg.guard(step), n, mind.run.view.attempts, mind.run.me.run, host)
                x = with_net(w, (*w.net, r))
                yield f"{name} sends {step.name}#{r.attempt}", False, self._put(x, i, Actor(a.life, mind, sent=True))
            case Unlock():
                free = with_lock(w, NOBODY) if w.lock == i else w
                yield f"{name} unlocks", False, then(Unlocked(), free)
            case Wait() | Finished():
                raise AssertionError(action)  # done in _put, at once

    def _at_once(self, w: World, i: int, word: str, fault: bool) -> Iterator[Move]:
        """
        Reduced: what a probe leads to is written in the same move.

        Whatever could come between, a landing, a crash, another's append, leads to the same worlds before or after.
        """
        a = w.actors[i]
        if not self._merges or a.mind is None or not isinstance(a.mind.action, Append):
            yield word, fault, w
            return
        for label, misfortune, x in self._append(w, i, a, a.mind, a.mind.action):
            yield f"{word}; {label}", fault or misfortune, x
        if w.left.crash:  # no new world, but a crash point of its own
            yield f"{NAMES[i]} crashes {self._where(w, a)}", True, kill(spend(w, "crash"), i)

    def _take_lock(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        name = NAMES[i]

        def then(result: Result, x: World = w) -> World:
            return self._put(x, i, Actor(a.life, self.minds.learn(mind, result), a.sent, a.frozen))

        if self.cfg.hosts:
            if hosts.can_lock(w, i):
                yield f"{name} locks", False, then(Locked())
            else:
                yield f"{name} finds the lock busy", False, then(Busy(overdue=False))
            return
        if w.lock == NOBODY and all(r.remote for r in w.net):
            yield f"{name} locks", False, self._hurry(then(Locked(), with_lock(w, i)), i)
            return
        if not self.cfg.lock_holds and w.left.suspicion:
            x = with_lock(spend(w, "suspicion"), i)
            yield f"{name} locks, though it is held", True, then(Locked(), x)
        if mind.run.ended:
            yield f"{name} finds the lock busy still", False, then(Busy(overdue=True))
            return
        yield f"{name} finds the lock busy", False, then(Busy(overdue=False))
        if i and w.lock != NOBODY and w.actors[w.lock].frozen:
            yield f"{name} finds the lock overdue", False, then(Busy(overdue=True))
        elif i and w.left.suspicion:
            yield f"{name} finds the lock overdue", True, then(Busy(overdue=True), spend(w, "suspicion"))

    def _read(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        for word, fault, standing, x in hosts.owner_seen(w, i) if self.cfg.hosts else alone(w):
            after = Actor(a.life, self.minds.learn(mind, Seen(w.task, standing)), a.sent, a.frozen)
            yield f"{NAMES[i]} reads{word}", fault, self._put(x, i, after)

    def _quiesce(
        self, w: World, i: int, a: Actor, mind: Mind, step: StepPlan, fence: tuple[int, int]
    ) -> Iterator[Move]:
        n = self._place[step.name]
        if step.guard is not Guard.FENCED and any(r.step == n for r in w.net):
            return
        for word, fault, standing, x in hosts.carrier_seen(w, i) if self.cfg.hosts else alone(w):
            quiet = self._put(x, i, Actor(a.life, self.minds.learn(mind, Quiet(standing)), a.sent, a.frozen))
            if step.guard is Guard.FENCED:
                side = w.sides[n]
                fenced = with_side(quiet, n, side._replace(fence=max(side.fence, fence)))
                yield f"{NAMES[i]} installs the fence {fence[0]}.{fence[1]}{word}", fault, fenced
            else:
                yield f"{NAMES[i]} drains{word}", fault, quiet

    def _findings(self, w: World, step: StepPlan) -> Iterator[tuple[Fact, bool, str]]:
        """What a probe may answer: fact, whether past the deadline, and which misfortune that is."""
        guard = self.cfg.guard(step)
        true = fact_of(w.sides[self._place[step.name]], guard)
        yield true, False, ""
        if guard is Guard.BLIND:
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
            return self._put(x, i, Actor(a.life, self.minds.learn(mind, result), a.sent, a.frozen))

        if self.cfg.compares and w.task != action.expect:
            yield f"{name} loses the race", False, then(Lost(w.task))
            return
        if w.left.busy_lane and any(d.kind is Kind.INTENDED for d in action.drafts):
            yield f"{name} finds the lane busy", True, then(Occupied("another"), spend(w, "busy_lane"))
        x = self._written(w, i, mind, action)
        yield f"{name} appends {tell(action.drafts)}", False, self._outdate(then(Appended(x.task), x), i)

    def _written(self, w: World, i: int, mind: Mind, action: Append) -> World:
        """Admit and write a unit; each outcome in it must be true, not merely well-formed."""
        if mind.unit is None or mind.unit[0] != w.task:
            mind.unit = (w.task, admitted(w.task, action.drafts))
        check_unit(self.cfg, w, action.drafts, mind.unit[1])
        x = with_task(w, mind.unit[1])
        if not self.cfg.hosts:
            return x
        begins = any(d.kind is Kind.INTENDED for d in action.drafts)
        return x._replace(carrier=i if begins else x.carrier if x.task.open else NOBODY)

    # -- the far side -----------------------------------------------------------------------------------------------

    def _requests(self, w: World) -> Iterator[Move]:
        for r in dict.fromkeys(w.net):
            tag, rest = f"{self.steps[r.step].name}#{r.attempt}", without(w, r)
            yield f"{tag} gets lost", False, rest
            if not r.remote:
                yield (
                    f"{tag} leaves this machine",
                    False,
                    with_net(w, (*rest.net, r._replace(remote=True, host=NOBODY))),
                )
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
                y = spend(with_net(w, (*rest.net, r._replace(sender=""))), "early_claim")
                yield f"{tag} is claimed before it arrives", True, self._reply(y, i, APPLIED)

    def _reply(self, w: World, i: int, replied: Replied) -> World:
        a = w.actors[i]
        assert a.mind is not None
        x = forget_sender(w, a.mind.run.me.run)
        heard = Actor(a.life, self.minds.learn(a.mind, replied), sent=False, frozen=a.frozen)
        return self._outdate_one(self._put(x, i, heard), i)

    # -- what a move does to the actors -----------------------------------------------------------------------------

    def _put(self, w: World, i: int, a: Actor) -> World:
        """Store an actor; what it does next without touching the world, it does at once."""
        while (mind := a.mind) is not None and not a.sent:
            match mind.action:
                case Finished():
                    a = Actor(a.life, None, a.sent, a.frozen)
                case Wait():
                    a = Actor(a.life, self.minds.learn(mind, Waited()), a.sent, a.frozen)
                case Unlock() if self._merges:
                    a = Actor(a.life, self.minds.learn(mind, Unlocked()), a.sent, a.frozen)
                    w = with_lock(w, NOBODY) if w.lock == i else w
                case _:
                    break
        return with_actor(w, i, a)

    @property
    def _merges(self) -> bool:
        """A frozen actor tells apart what is merged otherwise."""
        return self.cfg.reduced and not self.cfg.bounds.freeze and not self.cfg.hosts

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
