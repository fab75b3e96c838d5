"""
`journal open`, `advance`, `release`: what writes (DESIGN 8).

The writer lock is free: this process takes it and works itself. It is held: the service that holds it is asked over
HTTP, at the address and with the token that lie beside the lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.given import Given
    from integrations.cli.output import Output
    from journal import Journal
    from journal.results import Done, Freed, Result
    from journal.stream import Stream

Task = Annotated[str, typer.Argument(help="The task's id.")]


def open_task(
    ctx: typer.Context,
    task: Task,
    repo: Annotated[str, typer.Option("--repo", help="Repository, such as acme/widgets.")],
    branch: Annotated[str, typer.Option("--branch", help="The change's branch.")],
    base: Annotated[str, typer.Option("--base", help="Where it goes to.")] = "main",
    head: Annotated[str, typer.Option("--head", help="Full commit id of the change.")] = "",
    stage: Annotated[str, typer.Option("--stage", help="Where to begin; the pipeline's first by default.")] = "",
    pr: Annotated[int, typer.Option("--pr", help="Number of the pull request.", min=0)] = 0,
) -> None:
    """
    Open a task in its first stage.

    journal open ORCH-114 --repo acme/widgets --branch feature/rounding --pr 7
    """
    from journal.journal import NewTask

    wanted = NewTask(task, repo, branch, base, head, pr, stage)

    async def here(journal: Journal) -> Stream:
        return await journal.open_task(wanted, actor="operator")

    body = asdict(wanted) | {"actor": "operator"}
    answer = write(given(ctx), here, ("POST", "/tasks", body))
    data = answer if isinstance(answer, dict) else _opened(answer)
    out = output_of(ctx)
    if out.json:
        out.document(data)
    else:
        out.say(f"{data.get('task', task)} is open in {data.get('stage', stage)}", "ok")


def advance(
    ctx: typer.Context,
    task: Task,
    expect: Annotated[str, typer.Option("--expect", help="The stage you believe it is in; else nothing is done.")] = "",
) -> None:
    """
    Move a task over its next edge, or say why not.

    journal advance ORCH-114 --expect deploy-staging
    """
    from urllib.parse import quote

    async def here(journal: Journal) -> Result:
        return await journal.advance(task, expect=expect, actor="operator")

    path = f"/tasks/{quote(task, safe='')}/advance?wait=600"
    end(ctx, write(given(ctx), here, ("POST", path, {"expect": expect, "actor": "operator"})))


def release(
    ctx: typer.Context, task: Task, reason: Annotated[str, typer.Option("--reason", help="Stands in the log for ever.")]
) -> None:
    """
    Take a stuck ownership away: end its holder, fence it off under a new epoch, leave the task free.

    journal release ORCH-114 --reason "host is gone"
    """
    from urllib.parse import quote

    async def here(journal: Journal) -> Any:
        return await journal.release(task, reason=reason)

    path = f"/transition-lease/release?work_item={quote(task, safe='')}"
    end(ctx, write(given(ctx), here, ("POST", path, {"reason": reason, "actor": "operator"})))


# -- here, or through the service ------------------------------------------------------------------------------------

Request = tuple[str, str, dict[str, Any]]


def write(options: Given, here: Callable[[Journal], Awaitable[Any]], there: Request) -> Any:
    """Do it in this process if it may drive, else ask who drives; gives the result, or the service's document."""
    import asyncio

    from integrations.cli.remote import Remote
    from integrations.telemetry.logs import configure_logs
    from integrations.wiring import build, open_journal, running_version
    from journal.errors import NotWriterError, StoreUnavailableError

    settings = options.settings()
    configure_logs("warning", secrets=settings.secrets)
    remote = Remote(settings.db)
    if not settings.db.exists() and settings.server is None:
        raise StoreUnavailableError(
            path=str(settings.db), why="no such file", remedy="`journal init` creates a journal"
        )

    async def run() -> Any:
        parts = build(settings, running=running_version(settings) or None)
        async with open_journal(settings, parts) as journal:
            return await here(journal)

    for last in (False, False, True):
        if remote.driving:
            answer = remote.ask(*there)
            if answer is not None:
                return answer
        try:
            return asyncio.run(run())
        except NotWriterError:
            if last:
                raise
            remote.wait()
    raise AssertionError


def end(ctx: typer.Context, answer: Result | Freed | Done | dict[str, Any]) -> NoReturn:
    """Print a result and exit with its code."""
    from integrations.cli.exits import of_result
    from integrations.cli.remote import code_of

    if isinstance(answer, dict):
        data, code = answer, code_of(answer)
    else:
        data, code = {"result": _word(answer)} | asdict(answer), of_result(answer)
    out = output_of(ctx)
    if out.json:
        out.document(data)
    else:
        out.say(_sentence(data), "ok" if not code else "note" if code > 1 else "fault")
    raise typer.Exit(code)


def output_of(ctx: typer.Context) -> Output:
    """Standard output as this call wants it."""
    from integrations.cli.output import Output

    return Output(given(ctx))


def _opened(stream: Stream) -> dict[str, Any]:
    return {"task": stream.task, "stage": stream.state.stage, "version": stream.version, "epoch": stream.state.epoch}


def _word(answer: object) -> str:
    """`LostRace` as `lost_race`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(answer).__name__).lstrip("_")


def _sentence(data: dict[str, Any]) -> str:
    task, reason = data.get("task", ""), data.get("reason") or data.get("detail", "")
    match str(data.get("result", "")).replace("-", "_"):
        case "done":
            return f"{task}: {data.get('what', 'done')}; it is in {data.get('stage', '?')}"
        case "running":
            return f"{task}: its run goes on; `journal inspect {task}` tells how it ends"
        case "advanced":
            return f"{task}: {data['from_stage']} -> {data['to_stage']} in epoch {data['epoch']}"
        case "freed":
            return f"{task}: released; free under epoch {data['epoch']}"
        case "deferred" | "held":
            return f"{task}: another run holds it ({data.get('holder') or 'it cannot be read who'}); nothing was done"
        case "waiting":
            return f"{task}: waiting in {data.get('stage', '?')}: {reason}; the next look is due by itself"
        case "lost_race":
            return f"{task}: is in {data.get('stage', '?')}: {reason}; nothing was done"
        case "parked":
            return f"{task}: parked in {data.get('stage', '?')}: {reason}"
        case "rolled_back":
            return f"{task}: back in {data.get('to_stage', '?')}: {reason}"
        case word:
            return f"{task}: {word.replace('_', ' ')}: {reason}" if reason else f"{task}: {word}"
