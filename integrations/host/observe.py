"""
Open tasks against the host's rows, before anything is driven (O7; rows P4 and P5).

While the switch was off, or a repository was left out, the host went on alone. Nothing is undone and nothing guessed:
a stage the host wrote becomes a new generation there, an end the host wrote ends the task, and whatever was in the
middle is left to a person. Settled effects are asked about once more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog

from integrations.host.config import Scope
from integrations.host.table import HostTable, HostTask, host_task
from journal.errors import StoreUnavailableError
from journal.events import Draft, Switched
from journal.journal import Journal
from journal.log.unit import Unit, Written
from journal.names import shown
from journal.ownership import lock_folder
from journal.results import Done
from journal.state import TaskState
from journal.words import Hold
from projections.base import ask
from projections.lookup import open_places
from recovery.auditor import Auditor
from recovery.park import park

logger = structlog.get_logger(__name__)

ACTOR = "startup"
PAGE = 500
AWAY = "while the journal took no part"
OFF = "switched-off"
"""A file beside the locks: the switch was off while a journal was there, so its open tasks are observed anew (O7)."""


def leave_mark(db: Path) -> None:
    """Remember that the switch is off, where a journal was before; else not even a folder is made."""
    folder = lock_folder(db)
    if folder.is_dir():
        with suppress(OSError):
            (folder / OFF).touch()


async def settle_in(journal: Journal, table: HostTable, scope: Scope, db: Path) -> None:
    """
    Bring a journal that was just opened in a host's file into line with it, whoever drives: host's bridge or service.

    Raises:
        JournalError: It could not be done; nothing may be driven.
    """
    mark = lock_folder(db) / OFF
    was_off = mark.exists()
    if was_off:
        await record_switch(journal, "the switch is on again")
    strayed = await observe(journal, table, scope, audit=was_off)
    mark.unlink(missing_ok=True)  # only now: whoever dies before observes anew
    logger.info("host_adopted", db=str(db), was_off=was_off, strayed=strayed)


async def row_of(journal: Journal, table: HostTable, task: str) -> HostTask | None:
    """The host's row of a task, as of now; a hint, since only the log's own transaction compares it."""
    rows = await journal.log.query(table.select_one, (task,))
    found = host_task(tuple(rows[0])) if rows else None
    return found if found and found.task == task else None


async def record_switch(journal: Journal, reason: str) -> None:
    """
    Write that the mechanism is on again.

    Raises:
        StoreUnavailableError: It could not be written; nothing may be driven.
    """
    log = await journal.log.read("")
    answer = await journal.log.append(Unit(log, (Draft(Switched(enabled=True, reason=reason), actor=ACTOR),)))
    if not isinstance(answer, Written):
        raise StoreUnavailableError(path=str(journal.log.path), why="the log moved while it was opened")


async def observe(journal: Journal, table: HostTable, scope: Scope, *, audit: bool) -> int:
    """
    Bring every open task in scope into line with its row.

    Args:
        journal: Open and driving; nothing else drives yet.
        table: The host's.
        scope: Whose tasks take part.
        audit: Ask the world about settled effects too: the mechanism was off.

    Returns:
        How many tasks were found elsewhere.
    """
    auditor, strayed, after = Auditor(journal), 0, 0
    while places := await ask(journal.log, open_places(after, PAGE)):
        after = places[-1].entered  # what is reopened below enters anew, further on, and is found in line
        for place in places:
            if not scope.takes(place.repo):
                continue
            row = await row_of(journal, table, place.task)
            if row is None or row.stage != place.stage:
                strayed += 1
                await leave_astray(journal, place.task, row, catch_up=True)
            elif audit and (hazards := await auditor.audit(place.task)) and not place.hold:
                await _park(journal, place.task, place.stage, "; ".join(hazards))
    return strayed


async def leave_astray(journal: Journal, task: str, row: HostTask | None, *, catch_up: bool) -> None:
    """
    Deal with a task whose row the host moved past the journal.

    Args:
        journal: Open and driving.
        task: Its id.
        row: The host's row; None = it is gone.
        catch_up: The journal took no part meanwhile and follows; else somebody wrote a stage past it, which only a
            person may bless.
    """
    state = (await journal.log.read(task)).state
    where = f"the host moved it to '{shown(row.stage)}'" if row else "the host has no such task any more"
    logger.warning("host_went_elsewhere", task=task, stage=state.stage, host=row.stage if row else "")
    quiet = not (state.owner or state.open or state.loose)
    if catch_up and quiet and row is not None and await _follow(journal, task, state, row, f"{where} {AWAY}"):
        return
    if state.hold is Hold.NONE:
        await _park(journal, task, state.stage, where)


async def _follow(journal: Journal, task: str, state: TaskState, row: HostTask, reason: str) -> bool:
    """Go where the host is: a new generation in its stage, or the end. False = only a person may."""
    if journal.pipeline.edge(row.stage) is None and row.stage in journal.pipeline.stages:
        return isinstance(await journal.cancel(task, reason=reason, actor=ACTOR), Done)
    reopened = await journal.reopen(task, stage=row.stage, expect=state.stage, reason=reason, actor=ACTOR)
    return isinstance(reopened, Done)


async def _park(journal: Journal, task: str, stage: str, reason: str) -> None:
    remedy = f"{reason}; `journal reopen {task} --stage STAGE` goes on from where it should be"
    result = await park(journal, task, expect=stage, reason=remedy, actor=ACTOR, begun=True)
    logger.warning("host_task_parked", task=task, reason=reason, result=type(result).__name__)
