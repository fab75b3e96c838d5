"""
Shows a task in the tracker: its stage as the item's state, and a comment when it needs a person.

Views for people. A state is written only when another one holds, so writing twice, and our own writing coming back as a
notice, change nothing (R75). A person's wish that the task leave the stage it is in is never overwritten.
"""

from __future__ import annotations

import html

import structlog

from integrations.plane.client import PlaneClient, PlaneError
from integrations.plane.config import PlaneConfig
from integrations.plane.poll import SOURCE, Item, PlaneItems
from recovery.outside import Status

logger = structlog.get_logger(__name__)

TEXT_LIMIT = 4000


class PlanePublisher:
    """
    Shows tasks on their work items.

    Args:
        config: Which state shows which stage.
        client: The API.
        items: Finds the work item of a task.
    """

    def __init__(self, config: PlaneConfig, client: PlaneClient, items: PlaneItems) -> None:
        self._config, self._client, self._items = config, client, items

    async def publish(self, status: Status) -> bool:
        """Show a status; False = it could not be done now."""
        try:
            item = await self._items.find(status.subject.task)
            if item is not None:
                await self._show_stage(item, status.stage)
                await self._say(item, status)
        except PlaneError as error:
            logger.warning("tracker_not_told", task=status.subject.task, error=str(error), status=error.status)
            return False
        return True

    async def comment(self, item: Item, mark: str, text: str) -> None:
        """
        Say something once per mark: a second comment of the same external id is refused by the tracker itself.

        Raises:
            PlaneError: Whether it stands there is unknown; saying it again is safe.
        """
        body = {
            "comment_html": f"<p>{html.escape(text[:TEXT_LIMIT], quote=False)}</p>",
            "external_source": SOURCE,
            "external_id": mark[:255],
        }
        answer = await self._client.send("POST", f"work-items/{item.id}/comments/", body)
        if answer.status not in (200, 201, 409):
            raise PlaneError(what=f"comment on {item.task}", why="refused", status=answer.status)

    async def _show_stage(self, item: Item, stage: str) -> None:
        if stage not in self._config.states:
            return
        wanted = await self._items.state_id(self._config.states[stage])
        # A wish about this stage waits to come true. One about any other is over, also a later one that is left after a
        # rollback: it would confirm a deploy that nobody has looked at.
        if item.state == wanted or (await self._items.wishes()).get(item.state) == stage:
            return
        answer = await self._client.send("PATCH", f"work-items/{item.id}/", {"state": wanted})
        self._items.woken()
        if answer.status != 200:
            raise PlaneError(what=f"state of {item.task}", why="not set", status=answer.status)

    async def _say(self, item: Item, status: Status) -> None:
        if status.hold in ("parked", "canceled"):
            text = f"{status.hold} in {status.stage}: {status.reason}"
            await self.comment(item, f"{item.task}/{status.epoch}/{status.hold}", text)
