"""
Questions about the queue: what is open, what is due, how much is where.

Nothing here is asked by whoever decides: an actor picks a task from `due_tasks` as a hint, and the engine reads the
task's own stream under its lock (O6). Order is the position at which a task entered its stage, oldest first, so that
none starves (O2).
"""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

from dataclasses import dataclass

import orjson

from journal.names import MAX_INTEGER
from journal.words import Cause
from projections.base import Question, Rows

OWNER_JSON = (
    "CASE WHEN run = '' THEN NULL ELSE json_object('run', run, 'actor', actor, 'instance', instance, 'host', host, "
    "'pid', pid) END"
)
_BOOL = "json(iif({0}, 'true', 'false'))"

TASK_JSON = (
    "json_object('task', task, 'repo', repo, 'branch', branch, 'base', base, 'head', head, 'pr', pr, 'stage', stage, "
    "'status', status, 'generation', generation, 'epoch', epoch, 'version', version, 'position', position, "
    f"'owner', {OWNER_JSON}, 'from_stage', from_stage, 'to_stage', to_stage, 'step', step, 'attempts', attempts, "
    f"'in_doubt', {_BOOL.format('in_doubt')}, 'cancel_requested', {_BOOL.format('cancel')}, 'lane', lane, "
    "'acquired_us', acquired_us, 'stage_position', stage_position, 'stage_since_us', stage_since_us, "
    "'look_us', look_us, 'waiting_for', CASE WHEN hold = '' THEN reason ELSE '' END, "
    "'parked', CASE hold WHEN 'parked' THEN json_object('reason', reason, 'since_us', parked_us, 'alert', alert) END, "
    "'opened_us', opened_us, 'changed_us', changed_us)"
)
"""A task as JSON, made by SQLite: several times faster than objects in between (P9)."""


ARRAY = "'[' || coalesce(group_concat(item, ','), '') || ']'"
"""The rows' column `item`, each JSON already, as one array: `json_group_array` would parse each of them again."""

TIME = "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06dZ', {0} % 1000000)"
"""Microseconds since 1970 as people write a time, in UTC."""

HELD_JSON = (
    "json_object('task', task, 'epoch', epoch, 'from_stage', from_stage, 'to_stage', to_stage, 'step', step, "
    f"'owner', {OWNER_JSON}, 'acquired_at', {TIME.format('acquired_us')}, "
    "'age_s', max(0, ? - acquired_us) / 1000000, "
    f"'in_doubt', {_BOOL.format('in_doubt')}, 'waiting_for', reason, 'lane', lane)"
)
PARKED_JSON = (
    f"json_object('task', task, 'repo', repo, 'stage', stage, 'reason', reason, 'since', {TIME.format('parked_us')}, "
    "'alert', alert)"
)

LISTED = 1000
"""At most this many held, and this many parked tasks in one answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list."""

    tasks: bytes  # a JSON array
    cursor: int  # where the next page begins; 0 = this was the last


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queue at one moment, most of it as JSON (O6)."""

    position: int
    counts: bytes  # open tasks per stage, an object
    page: Page
    held: bytes  # an array; whether each holder lives is for the locks to say
    deferred: bytes  # by actor, an object
    reclaims: dict[str, int]
    parked: bytes  # an array
    due: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Due:
    """A task that may be driven now, as a hint."""

    task: str
    repo: str
    stage: str
    epoch: int
    version: int
    look_us: int  # when the look was due; 0 = at once
    stage_position: int
    owned: bool  # a run owned it when the journal last heard; its lock says whether that run lives
    begun: bool  # its edge was begun, so it must be finished whatever `advance` the edge has


def _page(rows: Rows) -> Page:
    return Page((rows[0][0] or "[]").encode(), rows[0][1] or 0)


def open_tasks(limit: int, cursor: int = 0, repo: str = "") -> Question[Page]:
    """
    Open tasks by stage entry, oldest first.

    Args:
        limit: At most this many.
        cursor: `Page.cursor` of the page before; 0 = from the beginning.
        repo: Of this repository only; empty = all.
    """
    sql = (
        f"SELECT {ARRAY}, iif(count(*) = ?, max(stage_position), 0) FROM ("
        f"SELECT {TASK_JSON} AS item, stage_position FROM journal_view_tasks "
        f"WHERE open = 1 AND stage_position > ? {'AND repo = ? ' if repo else ''}ORDER BY stage_position LIMIT ?)"
    )
    return Question(sql, (limit, cursor, *((repo,) if repo else ()), limit), _page)


def all_tasks(limit: int, cursor: int = 0, repo: str = "", stage: str = "", status: str = "") -> Question[Page]:
    """Tasks by opening, newest first, the ended ones too; filters that are empty let everything through."""
    wanted = {"repo": repo, "stage": stage, "status": status}
    given = {name: value for name, value in wanted.items() if value}
    where = "".join(f"AND {name} = ? " for name in given)
    few = ""
    if status and status not in ("done", "canceled"):
        few = "INDEXED BY journal_view_tasks_open "  # the planner would walk a million done ones to find ten others
        where += "AND open = 1 "
    sql = (
        f"SELECT {ARRAY}, iif(count(*) = ?, min(opened), 0) FROM ("
        f"SELECT {TASK_JSON} AS item, opened FROM journal_view_tasks {few}WHERE opened < ? {where}"
        "ORDER BY opened DESC LIMIT ?)"
    )
    return Question(sql, (limit, cursor or 2**63 - 1, *given.values(), limit), _page)


def snapshot(now_us: int, limit: int, cursor: int = 0, repo: str = "") -> Question[Snapshot]:
    """
    The whole queue in one statement, so in one read transaction.

    Args:
        now_us: Wall time, for ages and due looks.
        limit: At most this many open tasks.
        cursor: `Page.cursor` of the page before; 0 = from the beginning.
        repo: Of this repository only; empty = all. Deferrals and reclaims are of all.
    """
    of_repo = "AND repo = ?" if repo else ""
    counts = (
        f"SELECT stage, count(*) AS n FROM journal_view_tasks WHERE open = 1 {of_repo} GROUP BY stage ORDER BY stage"
        if repo
        else "SELECT stage, open AS n FROM journal_view_stages WHERE open > 0 ORDER BY stage"
    )
    sql = f"""
        SELECT
            (SELECT coalesce(max(position), 0) FROM journal_events),
            (SELECT json_group_object(stage, n) FROM ({counts})),
            (SELECT {ARRAY} FROM (
                SELECT {HELD_JSON} AS item FROM journal_view_tasks
                WHERE run <> '' {of_repo} ORDER BY acquired_us, opened LIMIT {LISTED})),
            (SELECT json_group_object(actor, n) FROM (
                SELECT actor, sum(count) AS n FROM journal_counters WHERE name = 'deferred'
                GROUP BY actor ORDER BY actor)),
            (SELECT json_group_object(cause, count) FROM journal_view_reclaims),
            (SELECT {ARRAY} FROM (
                SELECT {PARKED_JSON} AS item FROM journal_view_tasks
                WHERE hold = 'parked' {of_repo} ORDER BY parked_us, opened LIMIT {LISTED})),
            (SELECT count(*) FROM journal_view_tasks WHERE hold = '' AND run = '' AND look_us <= ? {of_repo}),
            (SELECT count(*) FROM journal_view_tasks WHERE hold = '' AND run = '' AND look_us > ? {of_repo}),
            page.tasks, page.cursor
        FROM (
            SELECT {ARRAY} AS tasks, iif(count(*) = ?, max(stage_position), 0) AS cursor
            FROM (SELECT {TASK_JSON} AS item, stage_position FROM journal_view_tasks
                  WHERE open = 1 AND stage_position > ? {of_repo} ORDER BY stage_position LIMIT ?)
        ) AS page
    """
    of = (repo,) if repo else ()
    given = (*of, now_us, *of, *of, now_us, *of, now_us, *of, limit, cursor, *of, limit)
    return Question(sql, given, _snapshot)


def _snapshot(rows: Rows) -> Snapshot:
    position, counts, held, deferred, reclaims, parked, due, waiting, tasks, cursor = rows[0]
    none = {cause.value: 0 for cause in Cause if cause is not Cause.NONE}
    return Snapshot(
        position, counts.encode(), Page(tasks.encode(), cursor), held.encode(), deferred.encode(),
        none | orjson.loads(reclaims), parked.encode(), due, waiting,
    )  # fmt: skip


def one_task(task: str) -> Question[bytes]:
    """One task as a JSON object; empty if there is none."""
    sql = f"SELECT {TASK_JSON} FROM journal_view_tasks WHERE task = ?"
    return Question(sql, (task,), lambda rows: rows[0][0].encode() if rows else b"")


CLOCK_SLACK_US = 60_000_000
"""How far in the future an event may lie before the clock is taken for one that was set back."""


def due_tasks(
    now_us: int, limit: int, *, stages: tuple[str, ...] | None = None, after: int = 0
) -> Question[tuple[Due, ...]]:
    """
    Tasks that may be driven now, oldest stage entry first; owned ones too, since only their lock tells who lives.

    Args:
        now_us: Wall time; a look that is due later is left out, unless the clock was set back since it was written.
        limit: At most this many.
        stages: Stages that go on by themselves (`advance = "auto"`); a task elsewhere is due only if its edge was
            begun, is owned or waits. None = every stage.
        after: `stage_position` of the last one already seen.
    """
    chosen = (
        ""
        if stages is None
        else ("AND (begun = 1 OR run <> '' OR look_us > 0 OR stage IN (SELECT value FROM json_each(?))) ")
    )
    sql = (
        "SELECT task, repo, stage, epoch, version, look_us, stage_position, run <> '', begun FROM journal_view_tasks "
        f"WHERE hold = '' AND stage_position > ? AND (look_us <= ? OR changed_us > ?) {chosen}"
        "ORDER BY stage_position LIMIT ?"
    )
    given = () if stages is None else (orjson.dumps(stages).decode(),)
    return Question(
        sql,
        # Written in the future: the clock was set back, and what was due in a minute would be due in a year.
        (after, now_us, min(now_us + CLOCK_SLACK_US, MAX_INTEGER), *given, limit),
        lambda rows: tuple(_due(*row) for row in rows),
    )


def _due(task: str, repo: str, stage: str, epoch: int, version: int, look: int, since: int, *flags: int) -> Due:
    owned, begun = flags
    return Due(task, repo, stage, epoch, version, look, since, bool(owned), bool(begun))


def next_look(now_us: int) -> Question[int]:
    """When the next look after this moment is due, in microseconds; 0 = none is."""
    sql = "SELECT min(look_us) FROM journal_view_tasks WHERE hold = '' AND look_us > ?"
    return Question(sql, (now_us,), lambda rows: rows[0][0] or 0)


def stage_counts() -> Question[dict[str, int]]:
    """Open tasks per stage; stages without any are left out."""
    sql = "SELECT stage, open FROM journal_view_stages WHERE open > 0 ORDER BY stage"
    return Question(sql, (), lambda rows: {row[0]: row[1] for row in rows})


def ended_count() -> Question[int]:
    """Tasks that are done or canceled."""
    return Question("SELECT coalesce(sum(ended), 0) FROM journal_view_stages", (), lambda rows: int(rows[0][0]))
