"""`journal pause`, `resume`, `retry`, `cancel`, `reopen`, `settle`: what a person decides, an event with its reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given
from integrations.cli.tasks import Task, end, write

if TYPE_CHECKING:
    from journal import Journal

Reason = Annotated[str, typer.Option("--reason", help="Stands in the log for ever.")]


class Settlement(StrEnum):
    """How an attempt in doubt ended, as a person found out."""

    APPLIED = "applied"
    NOT_APPLIED = "not-applied"


def pause(ctx: typer.Context, task: Task, reason: Reason) -> None:
    """
    Stop a task from being driven; an attempt that is in doubt stays so until it is resumed.

    journal pause ORCH-114 --reason "release freeze"
    """
    _verb(ctx, task, "pause", {"reason": reason}, lambda j: j.pause(task, reason=reason))


def resume(ctx: typer.Context, task: Task, reason: Reason) -> None:
    """
    Let a paused or parked task be driven again.

    journal resume ORCH-114 --reason "freeze is over"
    """
    _verb(ctx, task, "resume", {"reason": reason}, lambda j: j.resume(task, reason=reason))


def retry(ctx: typer.Context, task: Task, reason: Reason) -> None:
    """
    Let a parked task try again, with new attempts; the world is asked first.

    journal retry ORCH-114 --reason "the forge is back"
    """
    _verb(ctx, task, "retry", {"reason": reason}, lambda j: j.resume(task, reason=reason))


def cancel(ctx: typer.Context, task: Task, reason: Reason) -> None:
    """
    End a task before its next irreversible call; what may still land is waited for.

    journal cancel ORCH-114 --reason "no longer wanted"
    """
    _verb(ctx, task, "cancel", {"reason": reason}, lambda j: j.cancel(task, reason=reason))


def reopen(
    ctx: typer.Context,
    task: Task,
    reason: Reason,
    stage: Annotated[str, typer.Option("--stage", help="Where it begins again.")],
    head: Annotated[str, typer.Option("--head", help="Full commit id of the change's new head.")] = "",
) -> None:
    """
    Begin a new generation of a task, at a stage.

    journal reopen ORCH-114 --stage review --reason "reverted on main"
    """
    body = {"reason": reason, "stage": stage, "head": head}
    _verb(ctx, task, "reopen", body, lambda j: j.reopen(task, stage=stage, reason=reason, head=head))


def settle(
    ctx: typer.Context,
    task: Task,
    reason: Reason,
    outcome: Annotated[Settlement, typer.Option("--as", help="What you found.")],
    evidence: Annotated[str, typer.Option("--evidence", help="Where you saw it.")],
) -> None:
    """
    Say how the attempt of a parked task ended. Look first: it is believed.

    journal settle ORCH-114 --as applied --evidence "main is at 3f1c0a9" --reason "merged by hand"
    """
    applied = outcome is Settlement.APPLIED
    body = {"reason": reason, "as": outcome.value, "evidence": evidence}
    _verb(ctx, task, "settle", body, lambda j: j.settle(task, applied=applied, evidence=evidence, reason=reason))


def _verb(
    ctx: typer.Context, task: str, verb: str, body: dict[str, Any], here: Callable[[Journal], Awaitable[Any]]
) -> None:
    from urllib.parse import quote

    path = f"/tasks/{quote(task, safe='')}/{verb}"
    end(ctx, write(given(ctx), here, ("POST", path, body | {"actor": "operator"})))
