"""
Bad weather, drawn from one seed and counted in events that were seen, never in seconds.

Forge, tracker and chat as they are on a bad day: answers are lost after the work was done, records and notices come
late, early, twice or never, merges are slow, and whoever watches the count ends the service in the middle of a call.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from tests.doubles.gitea import LATER, Answer, Faults, Gitea
from tests.doubles.plane import BOT, PERSON, Plane, made_up
from tests.doubles.serving import hang_up
from tests.doubles.telegram import Telegram

SLOW_S = 1.0
"""The forge's own limit for a merge; what is configured as `settle_s` is longer."""


class Storm:
    """
    Counts what is seen; at some counts things happen.

    Args:
        seed: Everything random of a run follows from it.
        end: Ends the service at once.
    """

    def __init__(self, seed: int, end: Callable[[], object]) -> None:
        self.seed, self.seen, self.raging = seed, 0, True
        self.strike_at = 0  # 0 = not now
        self._end = end
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._order = count()
        self._posting: set[asyncio.Task[None]] = set()
        self.address = ""

    def chance(self, of: str) -> random.Random:
        """A source of its own for each matter, so that the order of events changes as little as possible."""
        return random.Random(f"{self.seed}/{of}")

    def observe(self, events: int = 1) -> None:
        """Something was seen."""
        for _ in range(events):
            self.seen += 1
            if self.seen == self.strike_at:
                self.strike_at = 0
                self._end()
            while self._due and self._due[0][0] <= self.seen:
                heapq.heappop(self._due)[2]()

    def later(self, events: int, act: Callable[[], object]) -> None:
        """Do something after so many more events."""
        heapq.heappush(self._due, (self.seen + events, next(self._order), act))

    def clear_up(self) -> None:
        """The weather is good from now on; what was to come comes now."""
        self.raging = False
        while self._due:
            heapq.heappop(self._due)[2]()

    def post(self, path: str, headers: Mapping[str, str], body: bytes, fate: random.Random) -> None:
        """Send a notice: at once, late, twice, or not at all. A service that does not run misses it."""
        match fate.choices(("now", "late", "twice", "never"), (4, 2, 1, 3))[0] if self.raging else "now":
            case "now":
                self._send(path, headers, body)
            case "late":
                self.later(fate.randint(2, 60), lambda: self._send(path, headers, body))
            case "twice":
                self._send(path, headers, body)
                self.later(fate.randint(1, 30), lambda: self._send(path, headers, body))
            case "never":
                pass

    def _send(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        sending = asyncio.create_task(self._deliver(path, headers, body))
        self._posting.add(sending)
        sending.add_done_callback(self._posting.discard)

    async def _deliver(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        with suppress(httpx.HTTPError):
            async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
                answer = await http.post(self.address + path, content=body, headers=dict(headers))
            assert answer.status_code in (200, 503), answer.text  # 503: it does not drive yet

    async def delivered(self) -> None:
        """Wait for notices that are under way."""
        await asyncio.gather(*self._posting)


@dataclass
class StormyGitea(Gitea):
    """A forge in bad weather. Each pull request has a number of strikes, so that there is an end."""

    storm: Storm = field(default_factory=lambda: Storm(0, lambda: None))
    strikes: int = 3  # for each pull request
    trouble: int = 40  # for all other calls together
    struck: list[str] = field(default_factory=list)  # which faults came, in order
    _left: dict[int, tuple[int, random.Random]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = self.storm.chance("forge calls")
        self._mail = self.storm.chance("forge mail")
        self._early = self.storm.chance("early mail")

    def faults_of(self, number: int) -> Faults:
        left, chance = self._left.get(number, (self.strikes, self.storm.chance(f"merge {number}")))
        self._left[number] = (left - 1, chance)
        if left <= 0 or not self.storm.raging or chance.random() < 0.1:
            return Faults()
        name = chance.choice(sorted(STRIKES))
        self.struck.append(name)
        return STRIKES[name](self, number, chance)

    def record_later(self, number: int, events: int) -> None:
        """The post-receive hook runs when it likes: main has moved, the record follows."""

        def catch_up() -> None:
            pull = self.pulls[number]
            told = self.git("log", "-1", "--format=%H", "--first-parent", f"--grep=(#{number})$", pull.base)
            if told and not pull.merged:
                self.catch_up(number, told)
            elif not pull.merged and self.storm.raging:
                self.storm.later(events, catch_up)

        self.storm.later(events, catch_up)

    def slow(self, events: int) -> asyncio.Event:
        """Set after so many events, at the latest when the forge's own patience ends."""
        hold = asyncio.Event()
        self.storm.later(events, hold.set)
        asyncio.get_running_loop().call_later(SLOW_S, hold.set)
        return hold

    def lag(self, number: int, events: int) -> None:
        """The API goes on naming an old head for a while."""
        self.faults.api_head[number] = self.git("rev-parse", f"{self.head(number)}^")
        self.storm.later(events, lambda: self.faults.api_head.pop(number, None))

    def merge_by_hand(self, number: int) -> None:
        """Somebody is faster."""
        if not self.pulls[number].merged:
            self.merge(number)

    def _move(self, number: int, style: str, message: str) -> str:
        if self.storm.raging and self._early.random() < 0.2:
            told = self._pull_event(number, "closed")  # the notice overtakes what it tells of
            self._hook("pull_request", told | {"pull_request": told["pull_request"] | {"merged": True}})
        return Gitea._move(self, number, style, message)

    async def _answer(self, scope: dict[str, Any], path: str, data: Any, send: Any) -> Answer | None:
        self.storm.observe()
        fault = self._fault() if not path.endswith("/merge") else ""
        if fault == "502":
            return 502, None
        answer = await Gitea._answer(self, scope, path, data, send)
        self.storm.observe()
        return None if fault == "drop" else answer

    async def _git(self, scope: dict[str, Any], body: bytes, authorized: bool, send: Any) -> None:
        self.storm.observe()
        if self._fault():
            hang_up(send)
            return
        await Gitea._git(self, scope, body, authorized, send)
        self.storm.observe()

    def _fault(self) -> str:
        if self.storm.raging and self.trouble and self._calls.random() < 0.06:
            self.trouble -= 1
            return self._calls.choice(("502", "drop"))
        return ""

    def _hook(self, event: str, data: dict[str, Any]) -> None:
        Gitea._hook(self, event, data)
        for headers, body in self.deliveries:
            self.storm.post("/webhooks/gitea", headers, body, self._mail)
        self.deliveries.clear()


def _lagging(forge: StormyGitea, number: int, chance: random.Random) -> Faults:
    forge.lag(number, chance.randint(1, 40))
    return Faults(instead=[(409, {"message": "head out of date"})])


def _late_record(forge: StormyGitea, number: int, chance: random.Random, **more: Any) -> Faults:
    forge.record_later(number, chance.randint(5, 80))
    return Faults(record=False, **more)


Strike = Callable[[StormyGitea, int, random.Random], Faults]
STRIKES: dict[str, Strike] = {
    "dropped before": lambda f, n, c: Faults(drop="before"),
    "dropped behind the ref": lambda f, n, c: _late_record(f, n, c, drop="ref"),
    "dropped after": lambda f, n, c: Faults(drop="after"),
    "500 after the push": lambda f, n, c: Faults(answer=(500, {"message": ""})),
    "500 before": lambda f, n, c: Faults(instead=[(500, {"message": ""})]),
    "405 not checked": lambda f, n, c: Faults(instead=[(405, {"message": LATER})]),
    "405 not allowed": lambda f, n, c: Faults(instead=[(405, {"message": "Please get more approvals"})]),
    "409 push": lambda f, n, c: Faults(instead=[(409, {"message": "merge push out of date"})]),
    "409 unknown": lambda f, n, c: Faults(instead=[(409, {"message": ""})]),
    "409 lagging head": _lagging,
    "503 busy": lambda f, n, c: Faults(instead=[(503, None, [(b"retry-after", b"1")])]),
    "stale record": _late_record,
    "unnamed": lambda f, n, c: Faults(names_landed=False),
    "slow": lambda f, n, c: Faults(hold=f.slow(c.randint(1, 60))),
    "slow and cut off": lambda f, n, c: Faults(hold=f.slow(c.randint(1, 60)), cut=True),
    "slow, then the record late": lambda f, n, c: _late_record(f, n, c, hold=f.slow(c.randint(1, 60))),
    "merged by hand": lambda f, n, c: Faults(before_merge=lambda: f.merge_by_hand(n)),
}
"""What may happen to one call to merge."""


@dataclass
class StormyPlane(Plane):
    """A tracker in bad weather; it remembers who was overruled."""

    storm: Storm = field(default_factory=lambda: Storm(0, lambda: None))
    trouble: int = 20
    wishes: Mapping[str, str] = field(default_factory=dict)  # state -> stage that a person wants the task to leave
    stage_of: Callable[[str], str] = lambda task: ""
    overruled: list[str] = field(default_factory=list)  # wishes that were written over before they came true

    def __post_init__(self) -> None:
        self._faults, self._mail = self.storm.chance("tracker calls"), self.storm.chance("tracker mail")

    def move(self, number: int, state: str, by: str = PERSON, key: str = "state_id") -> None:
        asked = self.wishes.get(self.state_of(number), "") if by == BOT else ""
        if asked and self.stage_of(f"ORCH-{number}") == asked:
            self.overruled.append(f"ORCH-{number}: {self.state_of(number)} -> {state}")
        super().move(number, state, by, key)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.storm.observe()
        fault = ""
        if self.storm.raging and self.trouble and self._faults.random() < 0.06:
            self.trouble -= 1
            fault = self._faults.choice(("500", "429", "drop"))
        if fault == "500":
            self.refused.append(500)
        elif fault == "429":
            self.refused.append((429, {"retry-after": "1"}))

        async def lost(message: dict[str, Any]) -> None:
            del message
            hang_up(send)

        await super().__call__(scope, receive, lost if fault == "drop" else send)
        self.storm.observe()

    def _tell(self, event: str, body: dict[str, Any], event_id: str = "") -> None:
        super()._tell(event, body, event_id)
        for headers, raw in self.notices:
            self.storm.post("/webhooks/plane", headers, raw, self._mail)
        self.notices.clear()

    def item(self, number: int) -> str:
        """The id of a work item."""
        return made_up(f"item {number}")


@dataclass
class StormyTelegram(Telegram):
    """A chat in bad weather."""

    storm: Storm = field(default_factory=lambda: Storm(0, lambda: None))
    trouble: int = 5
    lost: int = 0  # answers that were lost: told again

    def __post_init__(self) -> None:
        self._faults = self.storm.chance("chat")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.storm.observe()
        if self.storm.raging and self.trouble and self._faults.random() < 0.3:
            self.trouble -= 1
            if self._faults.random() < 0.5:
                self.drop_after, self.lost = 1, self.lost + 1
            else:
                self.refusals.append({"error_code": 429, "parameters": {"retry_after": 1}})
        await super().__call__(scope, receive, send)
        self.storm.observe()
