"""A gate on the work item's state: asked anew each time, and what was seen is kept."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from integrations.plane.client import PlaneError
from integrations.plane.poll import PlaneItems
from journal.ports import Answer, Call
from journal.words import Opening, evidence


class PlaneGateConfig(BaseModel):
    """`[gates.NAME] use = "plane-state"`: open while the item is in one of these states."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    states: tuple[str, ...] = Field(min_length=1)


class PlaneGate:
    """A person can move the item on while we work, so it is read again where it matters (plane.md 4)."""

    def __init__(self, config: PlaneGateConfig, items: PlaneItems) -> None:
        self._config, self._items = config, items

    async def ask(self, call: Call) -> Answer:
        try:
            self._items.woken()
            item = await self._items.find(call.subject.task)
            wanted = {await self._items.state_id(state) for state in self._config.states}
        except PlaneError as error:
            return Answer(Opening.UNKNOWN, evidence(source="plane", reason="cannot_ask"), str(error)[:400])
        if item is None:
            return Answer(
                Opening.CLOSED, evidence(source="plane", item=""), "the tracker has no work item of this task"
            )
        seen = evidence(source="plane", item=item.id, state=item.state)
        if item.state in wanted:
            return Answer(Opening.OPEN, seen)
        return Answer(Opening.CLOSED, seen, f"the work item is in none of: {', '.join(self._config.states)}")
