"""
What people ask for in the tracker, read afresh: the state of a work item, by names that the configuration explains.

A notice only says when to look; looking alone finds the same (R73). A round over many tasks shares one listing, a
single look reads the one item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from integrations.plane.client import PlaneClient, PlaneError
from integrations.plane.config import PlaneConfig
from journal.ports import Clock

logger = structlog.get_logger(__name__)

SOURCE = "transition-journal"
"""Marks what belongs to us in fields `external_source`."""
FRESH_S = 5.0
"""A listing this old still answers, so that one round over all tasks costs one listing."""
SINGLES = 3
"""Items read one by one before a round is recognised and the project is listed."""
PER_PAGE = 100
PAGES = 50
_FIELDS = "id,sequence_id,state,external_source,external_id"


@dataclass(frozen=True, slots=True)
class Item:
    """One work item as the tracker has it."""

    id: str
    state: str  # id of its state
    task: str  # "" = belongs to no task of ours


class PlaneItems:
    """
    Reads work items and states of one project; a `Tracker`.

    Args:
        config: Project, states, approvers.
        client: The API.
        clock: Says how old a listing is.
    """

    def __init__(self, config: PlaneConfig, client: PlaneClient, clock: Clock) -> None:
        self._config, self._client, self._clock = config, client, clock
        self._states: dict[str, str] = {}  # name and id -> id
        self._items: dict[str, Item] = {}  # by task, as last listed or read
        self._tasks: dict[str, str] = {}  # by item
        self._listed_s = float("-inf")
        self._woken = 0
        self._singles: list[float] = []
        self._turn = asyncio.Lock()

    async def asked(self, task: str) -> str | None:
        """Name the stage that a person wants the task to leave, "" for none; None = the tracker could not be asked."""
        try:
            item = await self.find(task)
            return await self._wish(item) if item else ""
        except PlaneError as error:
            logger.warning("tracker_not_asked", task=task, error=str(error), status=error.status)
            return None

    async def find(self, task: str) -> Item | None:
        """
        Find the work item of a task as it is now, or was `FRESH_S` ago if nothing told of a change since.

        Raises:
            PlaneError: Nothing is known.
        """
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if now_s - self._listed_s > FRESH_S:
                self._singles = [at for at in self._singles if now_s - at <= FRESH_S]
                known = self._items.get(task)
                if len(self._singles) < SINGLES and (known or self._is_key(task)):
                    self._singles.append(now_s)
                    return await self._read(task, known)
                await self._list()
            return self._items.get(task)

    async def state_id(self, state: str) -> str:
        """
        Translate a state's name, or its id, into its id.

        Raises:
            PlaneError: There is no such state, or the tracker did not say.
        """
        if state not in self._states:  # asked again on a miss: states are made and renamed at any time
            await self._read_states()
        if state not in self._states:
            raise PlaneError(what=f"state '{state}'", why="the project has none of that name or id", status=404)
        return self._states[state]

    def task_of(self, item: str) -> str:
        """Name the task of a work item that was seen before; "" = not known."""
        return self._tasks.get(item, "")

    def woken(self) -> None:
        """A notice came: what was listed before it no longer answers, nor what is being listed right now."""
        self._listed_s = float("-inf")
        self._woken += 1

    async def wishes(self) -> Mapping[str, str]:
        """
        Translate the configured wishes: id of a state -> stage that a person wants the task to leave.

        Raises:
            PlaneError: A state does not exist, or the tracker did not say.
        """
        return {await self.state_id(state): stage for state, stage in self._config.transitions.items()}

    async def _wish(self, item: Item) -> str:
        stage = (await self.wishes()).get(item.state, "")
        if stage and self._config.approvers and await self._mover(item) not in self._config.approvers:
            logger.info("wish_not_from_an_approver", task=item.task, stage=stage)
            return ""
        return stage

    async def _mover(self, item: Item) -> str:
        """Who moved the item into its state, by the item's own history; "" = it does not say."""
        moves = [
            e
            for e in await self._entries(f"work-items/{item.id}/activities/")
            if e.get("field") in ("state", "state_id")
        ]
        last = max(moves, key=lambda e: str(e.get("created_at") or ""), default={})
        if str(last.get("new_identifier") or last.get("new_value") or "") not in (item.state, self._name(item.state)):
            return ""
        actor = last.get("actor")
        return str(actor.get("id") if isinstance(actor, dict) else actor or "")

    def _name(self, state: str) -> str:
        return next((name for name, known in self._states.items() if known == state and name != state), state)

    def _is_key(self, task: str) -> bool:
        head, _, number = task.rpartition("-")
        return bool(self._config.identifier) and head == self._config.identifier and number.isdecimal()

    async def _read(self, task: str, known: Item | None) -> Item | None:
        answer = await (self._client.get(f"work-items/{known.id}/") if known else self._client.by_key(task))
        if answer.status == 404:
            self._items.pop(task, None)
            return None
        item = self._item(answer.data)
        if answer.status != 200 or item is None:
            raise PlaneError(what=f"work item of {task}", why="not what was expected", status=answer.status)
        if item.task != task:
            return None
        self._keep(item)
        return item

    async def _list(self) -> None:
        woken, self._items = self._woken, {}
        for entry in await self._entries("work-items/", fields=_FIELDS):
            if (item := self._item(entry)) and item.task:
                self._keep(item)
        if self._woken == woken:
            self._listed_s = self._clock.monotonic_s()

    def _keep(self, item: Item) -> None:
        self._items[item.task], self._tasks[item.id] = item, item.task

    async def _read_states(self) -> None:
        found = [e for e in await self._entries("states/") if e.get("id")]
        self._states = {str(e.get("name")): str(e["id"]) for e in found} | {str(e["id"]): str(e["id"]) for e in found}

    async def _entries(self, path: str, **query: str) -> list[dict[str, Any]]:
        """Read a list to its end; one that is not read to its end is no answer (V2)."""
        found: list[dict[str, Any]] = []
        cursor = f"{PER_PAGE}:0:0"
        for _ in range(PAGES):
            answer = await self._client.get(path, per_page=PER_PAGE, cursor=cursor, **query)
            page = answer.data.get("results") if isinstance(answer.data, dict) else answer.data
            if answer.status != 200 or not isinstance(page, list):
                raise PlaneError(what=path, why="not a list", status=answer.status)
            found += [entry for entry in page if isinstance(entry, dict)]
            if not isinstance(answer.data, dict) or not answer.data.get("next_page_results"):
                return found
            cursor = str(answer.data.get("next_cursor") or "")
        raise PlaneError(what=path, why=f"longer than {PAGES * PER_PAGE} entries")

    def _item(self, entry: Any) -> Item | None:
        if not isinstance(entry, dict) or not entry.get("id"):
            return None
        state = entry.get("state")
        state = state.get("id") if isinstance(state, dict) else state
        return Item(str(entry["id"]), str(state or ""), task_in(entry, self._config.identifier))


def task_in(entry: Mapping[str, Any], identifier: str) -> str:
    """Name the task that a work item says it belongs to: our external id, else its key; "" = none."""
    if entry.get("external_source") == SOURCE and entry.get("external_id"):
        return str(entry["external_id"])
    number = entry.get("sequence_id")
    return f"{identifier}-{number}" if identifier and isinstance(number, int) and not isinstance(number, bool) else ""
