"""
The simulated world: actors, the journal's fold, the task's lock, a far side per step, requests in flight. Immutable.

Only what a later move may depend on is kept, so that worlds that behave alike from here on are equal (ENGINE 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from journal import engine
from journal import learn as learning
from journal.actions import (
    Action,
    Result,
)
from journal.plan import EdgePlan, StepPlan
from journal.run import Run
from journal.state import TaskState
from journal.words import Guard
from recovery.prove.minds import Mind

NOBODY = -1
NAMES = "ABC"


class Violation(Exception):  # noqa: N818  (what the search looks for, not a failure of ours)
    """
    A world that must never be; the shortest trace ends with it.

    Args:
        sort: double (an effect twice), false (the journal says what is not so), inadmissible (a unit breaks a rule).
        what: The rest of the sentence.
    """

    def __init__(self, *, sort: str, what: str) -> None:
        self.sort, self.what = sort, what
        super().__init__(f"{sort}: {what}")


class Side(NamedTuple):
    """The far side of one step, outside everything the journal controls."""

    landed: int = 0  # the attempt whose effect happened last; 0 = none; 1 for a fact that came true by itself
    keys: tuple[str, ...] = ()  # exclusive: keys that were used
    fence: tuple[int, int] = (0, 0)  # fenced: the highest fence seen or installed
    other: bool = False  # somebody outside the journal did it

    @property
    def there(self) -> bool:
        return bool(self.landed) or self.other


class Request(NamedTuple):
    """An attempt on its way. What its far side never looks at is left empty, lest it tell equal worlds apart."""

    remote: bool  # False: in a child, which holds the task's lock; True: nothing here can recall it
    step: int
    attempt: int
    key: str
    fence: tuple[int, int]
    sender: str  # who still waits for the reply
    host: int = NOBODY  # with hosts: on which its child still is


class Actor(NamedTuple):
    """A process that may drive the task: idle, or in the middle of a run."""

    life: int = 0  # the next process needs a name that the journal does not call the owner; two suffice
    mind: Mind | None = None
    sent: bool = False  # inside Apply, waiting for the reply
    frozen: bool = False  # stopped for ever; never scheduled again


class Bounds(NamedTuple):
    """How often each of these may still happen. They bound the search; nothing else needs a cap."""

    crash: int = 0  # an actor's process dies, its children live on
    suspicion: int = 0  # a living owner is held for hung
    freeze: int = 0  # the first actor stops for ever
    bad_probe: int = 0  # a probe answers unknown or conflict
    lag: int = 0  # a probe answers absent about an effect that is there
    late: int = 0  # a probe comes after the deadline
    refusal: int = 0  # the far side refuses a request, and says so
    false_refusal: int = 0  # the far side does it and answers that it did not
    early_claim: int = 0  # the far side answers that it did it, and does it later
    external: int = 0  # somebody outside the journal does the step
    power_cut: int = 0  # every process dies at once
    shut_gate: int = 0  # a gate answers closed or unknown
    busy_lane: int = 0  # another task holds the lane
    pause: int = 0  # an operator pauses the task
    cancel: int = 0  # an operator asks for the end
    retry: int = 0  # an operator lets a parked task be driven again
    settle: int = 0  # an operator settles parked doubt, truthfully
    restore: int = 0  # the journal is replaced by an older copy


class World(NamedTuple):
    """Everything, at one moment."""

    task: TaskState
    sides: tuple[Side, ...]
    net: tuple[Request, ...]
    actors: tuple[Actor, ...]
    lock: int  # which actor's process holds the task's lock; children hold it too, see `net`
    doom: bool  # a deploy is about to restart the service, all actors at once
    left: Bounds
    durable: TaskState | None = None  # only without FULL: what a power cut leaves
    saved: TaskState | None = None  # the backup
    carrier: int = NOBODY  # with hosts: which actor began the open attempt


Move = tuple[str, bool, World]
"""A label, whether it is a misfortune (liveness must not lean on those), and the world after it."""

NextAction = Callable[[Run], Action]
Learn = Callable[[Run, Action, Result], Run]


@dataclass(frozen=True, slots=True)
class Config:
    """What is explored: the edges, who acts, what may go wrong, and what the mutants break."""

    plans: tuple[EdgePlan, ...]  # interned; the task begins at the first one's source
    bounds: Bounds = Bounds(crash=2, suspicion=1, bad_probe=1)  # noqa: RUF009  (a NamedTuple is immutable)
    actors: int = 2
    reduced: bool = False  # merge moves that nobody can observe; mutants that break what is merged need False
    reconciles: bool = False  # a reconciler frees a parked task whose effect shows up
    hosts: bool = False  # each actor on a host of its own; never merged, so `reduced` does little
    # What the surroundings promise; False is a mutant, but for `deploy_kills`.
    compares: bool = True  # an append compares the version
    full_sync: bool = True  # a commit survives a power cut
    lock_holds: bool = True  # the lock excludes; False: a suspicion may win a lock that is held
    deploy_kills: bool = True  # the deployer ends who asked for it
    floor: bool = True  # a restore begins an incarnation above every epoch ever used
    really: tuple[tuple[str, Guard], ...] = ()  # steps whose far side is not what their declaration says
    next_action: NextAction = engine.next_action
    learn: Learn = learning.learn
    # Follows from the plans, and is asked for at every move.
    steps: tuple[StepPlan, ...] = field(init=False, repr=False, compare=False)
    place: dict[str, int] = field(init=False, repr=False, compare=False)  # step -> its place among `steps`

    def __post_init__(self) -> None:
        steps = tuple(s for p in self.plans for s in p.steps)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "place", {s.name: n for n, s in enumerate(steps)})

    def guard(self, step: StepPlan) -> Guard:
        """How the far side of a step behaves; the engine knows only what was declared."""
        for name, guard in self.really:
            if name == step.name:
                return guard
        return step.guard

    @property
    def way(self) -> tuple[str, ...]:
        """The steps from the first stage forward to the end: what must be there when the task is done."""
        edges, stage, names = {p.source: p for p in self.plans}, self.plans[0].source, list[str]()
        while stage in edges and len(names) < len(self.steps):
            names += [s.name for s in edges[stage].steps]
            stage = edges[stage].target
        return tuple(names)

    def start(self) -> World:
        """A task that was just opened, and nobody doing anything."""
        task = TaskState(self.plans[0].source, generation=1)
        sides, actors = (Side(),) * len(self.steps), (Actor(),) * self.actors
        return World(task, sides, (), actors, NOBODY, doom=False, left=self.bounds, durable=self._durable(task))

    def _durable(self, task: TaskState) -> TaskState | None:
        return None if self.full_sync else task


class Route:
    """The pipeline as the engine sees it. One object a search, compared by identity."""

    def __init__(self, plans: tuple[EdgePlan, ...]) -> None:
        self._edges = {p.source: p for p in plans}

    def edge(self, stage: str) -> EdgePlan | None:
        return self._edges.get(stage)


# -- small changes of a world. Millions of them are made, and `_replace` would cost more than everything else. ---------


def with_side(w: World, n: int, side: Side) -> World:
    """Change the far side of one step."""
    sides = (*w.sides[:n], side, *w.sides[n + 1 :])
    return World(w.task, sides, w.net, w.actors, w.lock, w.doom, w.left, w.durable, w.saved, w.carrier)


def with_actor(w: World, i: int, actor: Actor) -> World:
    """Change one actor."""
    actors = (*w.actors[:i], actor, *w.actors[i + 1 :])
    return World(w.task, w.sides, w.net, actors, w.lock, w.doom, w.left, w.durable, w.saved, w.carrier)


def with_net(w: World, requests: Iterable[Request]) -> World:
    """Let exactly these requests be on their way; their order means nothing."""
    net = tuple(sorted(requests))
    return World(w.task, w.sides, net, w.actors, w.lock, w.doom, w.left, w.durable, w.saved, w.carrier)


def with_lock(w: World, holder: int) -> World:
    """Let this actor's process hold the task's lock."""
    return World(w.task, w.sides, w.net, w.actors, holder, w.doom, w.left, w.durable, w.saved, w.carrier)


def with_task(w: World, task: TaskState) -> World:
    """Let the journal say this."""
    return World(task, w.sides, w.net, w.actors, w.lock, w.doom, w.left, w.durable, w.saved, w.carrier)


def without(w: World, r: Request) -> World:
    """Take one request off its way."""
    k = w.net.index(r)
    return with_net(w, w.net[:k] + w.net[k + 1 :])


def only_remote(w: World) -> World:
    """The local children are gone; what has left this machine stays."""
    return with_net(w, (r for r in w.net if r.remote))


def forget_sender(w: World, sender: str) -> World:
    """Nobody waits for the replies any more, so whose they were tells nothing."""
    if all(r.sender != sender for r in w.net):
        return w
    return with_net(w, (r._replace(sender="") if r.sender == sender else r for r in w.net))


def kill(w: World, *which: int) -> World:
    """End these actors' processes: their locks fall free, their children and requests live on."""
    for i in which:
        w = forget_sender(w, f"{NAMES[i]}{w.actors[i].life}")
        w = with_lock(w, NOBODY) if w.lock == i else w
        w = with_actor(w, i, Actor(int(w.task.owner == f"{NAMES[i]}0")))
    return w


def spend(w: World, what: str) -> World:
    """One chance less."""
    left = _less(w.left, what)
    return World(w.task, w.sides, w.net, w.actors, w.lock, w.doom, left, w.durable, w.saved, w.carrier)


@lru_cache(maxsize=4096)
def _less(left: Bounds, what: str) -> Bounds:
    return Bounds(*(n - (f == what) for f, n in zip(Bounds._fields, left, strict=True)))
