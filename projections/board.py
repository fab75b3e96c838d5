"""
Questions a board asks: some tasks of every stage, more of one, what is in doubt with nobody near, what a word finds.

One bounded statement each, over indexes that hold open tasks only; ended ones cost nothing until somebody searches.
"""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

from projections.base import Question, Rows
from projections.queue import ARRAY, TASK_JSON, Page

SEARCHED = 20_000
"""A word is looked for in this many of the newest tasks; an id that is spelled out is found however old."""


def columns(limit: int, repo: str = "") -> Question[bytes]:
    """The first tasks of every stage, by stage entry: a JSON array. `limit`: at most this many a stage."""
    sql = (
        f"SELECT {ARRAY} FROM (SELECT {TASK_JSON} AS item FROM journal_view_tasks "
        "WHERE opened IN (SELECT opened FROM (SELECT opened, row_number() OVER (PARTITION BY stage "
        f"ORDER BY stage_position) AS place FROM journal_view_tasks WHERE open = 1 {_of(repo)}) WHERE place <= ?) "
        "ORDER BY stage_position)"
    )
    return Question(sql, (*_given(repo), limit), _array)


def column(stage: str, limit: int, after: int = 0) -> Question[Page]:
    """Open tasks of one stage, by stage entry, from behind a cursor."""
    sql = (
        f"SELECT {ARRAY}, iif(count(*) = ?, max(stage_position), 0) FROM ("
        f"SELECT {TASK_JSON} AS item, stage_position FROM journal_view_tasks INDEXED BY journal_view_tasks_open "
        "WHERE open = 1 AND stage = ? AND stage_position > ? ORDER BY stage_position LIMIT ?)"
    )
    return Question(sql, (limit, stage, after, limit), lambda rows: Page((rows[0][0] or "[]").encode(), rows[0][1]))


def parked(limit: int, repo: str = "") -> Question[bytes]:
    """Tasks that are left to a person, longest first."""
    sql = (
        f"SELECT {ARRAY} FROM (SELECT {TASK_JSON} AS item FROM journal_view_tasks "
        f"WHERE hold = 'parked' {_of(repo)} ORDER BY parked_us, opened LIMIT ?)"
    )
    return Question(sql, (*_given(repo), limit), _array)


def doubtful(limit: int, repo: str = "") -> Question[bytes]:
    """Open tasks, not parked, with an attempt in doubt that nobody owns, longest in their stage first."""
    sql = (
        f"SELECT {ARRAY} FROM (SELECT {TASK_JSON} AS item FROM journal_view_tasks "
        "INDEXED BY journal_view_tasks_open WHERE open = 1 AND in_doubt = 1 AND run = '' AND hold <> 'parked' "
        f"{_of(repo)} ORDER BY stage_position LIMIT ?)"
    )
    return Question(sql, (*_given(repo), limit), _array)


def found(text: str, limit: int) -> Question[bytes]:
    """Tasks whose id, branch, repository or head holds a text, letter case aside; newest first."""
    like = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    sql = (
        f"SELECT {ARRAY} FROM (SELECT {TASK_JSON} AS item FROM journal_view_tasks WHERE opened IN "
        "(SELECT opened FROM journal_view_tasks WHERE task = ? UNION SELECT opened FROM (SELECT opened, task, branch, "
        "repo, head FROM journal_view_tasks ORDER BY opened DESC LIMIT ?) WHERE task LIKE ? ESCAPE '\\' OR branch LIKE "
        "? ESCAPE '\\' OR repo LIKE ? ESCAPE '\\' OR head LIKE ? ESCAPE '\\') ORDER BY opened DESC LIMIT ?)"
    )
    return Question(sql, (text, SEARCHED, like, like, like, like, limit), _array)


def _array(rows: Rows) -> bytes:
    return (rows[0][0] or "[]").encode()


def _of(repo: str) -> str:
    return "AND repo = ?" if repo else ""


def _given(repo: str) -> tuple[str, ...]:
    return (repo,) if repo else ()
