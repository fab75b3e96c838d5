"""`journal recover`: what startup recovery would decide (`--plan`), and carrying out exactly that plan (`--apply`)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.output import Output
    from journal import Journal
    from recovery.plan import Plan


SHOWN = 10
"""Tasks whose cells that did not fire are shown to a person."""


def recover(
    ctx: typer.Context,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan; writes nothing. The default.")] = False,
    apply: Annotated[str, typer.Option("--apply", help="Carry out the plan of this token, if nothing changed.")] = "",
) -> None:
    """
    Show what recovery would decide about every task that was left in the middle, or carry a shown plan out.

    journal recover --plan
    journal recover --apply 3f1c0a9d5b7e2466
    """
    import asyncio

    from integrations.cli.exits import USAGE
    from integrations.cli.output import Output, complain
    from integrations.telemetry.logs import configure_logs
    from journal.errors import StoreUnavailableError

    options = given(ctx)
    if plan and apply:
        complain("--plan and --apply exclude each other")
        raise typer.Exit(USAGE)
    out, settings = Output(options), options.settings()
    configure_logs("warning", secrets=settings.secrets)
    if settings.server is not None:
        options.database()  # a plan is made from this host's copy, brought up to the server
    elif not settings.db.exists():
        raise StoreUnavailableError(
            path=str(settings.db), why="no such file", remedy="`journal init` creates a journal"
        )

    async def run() -> int:
        from integrations.wiring import build, open_journal, running_version

        parts = build(settings, running=running_version(settings) or None)
        async with open_journal(settings, parts, write=bool(apply)) as journal:
            return await _apply(out, journal, apply) if apply else await _plan(out, journal)

    raise typer.Exit(asyncio.run(run()))


async def _plan(out: Output, journal: Journal) -> int:
    from recovery.plan import make_plan

    made = await make_plan(journal)
    if out.json:
        out.document(_data(made))
    else:
        _show(out, made)
    return 0


async def _apply(out: Output, journal: Journal, token: str) -> int:
    """Acquire, probe again, decide anew: the plan only says that nothing it rests on has changed (V9)."""
    from integrations.cli.exits import LATER, of_result
    from integrations.cli.output import complain
    from recovery.plan import make_plan

    made = await make_plan(journal)
    if made.token != token:
        complain(
            f"the plan is another one by now ({made.token}); nothing was done, look at it with `journal recover --plan`"
        )
        return LATER
    results = []
    for forecast in made.forecasts:
        result = await journal.advance(forecast.task, expect=forecast.stage, actor="startup")
        results.append((forecast, result))
    if out.json:
        out.document(
            {
                "token": made.token,
                "results": [{"result": type(r).__name__, "forecast": f.verdict} | asdict(r) for f, r in results],
            }
        )
    else:
        rows = [(f.task, f.step, f.verdict, type(r).__name__, getattr(r, "reason", "")) for f, r in results]
        out.table(("task", "step", "forecast", "result", "reason"), rows)
    return max((of_result(r) for _, r in results if of_result(r) != LATER), default=0)


def _data(made: Plan) -> dict[str, Any]:
    forecasts = [
        asdict(f) | {"seen": dict(f.seen), "others": [asdict(cell) for cell in f.others]} for f in made.forecasts
    ]
    return {"position": made.position, "token": made.token, "tasks": forecasts}


def _show(out: Output, made: Plan) -> None:
    from integrations.cli.output import seen

    if not made.forecasts:
        out.say("nothing was left in the middle; recovery has nothing to decide", "ok")
    else:
        out.table(
            ("task", "stage", "epoch", "step", "journal", "world", "would", "why", "seen"),
            [(f.task, f.stage, f.epoch, f.step, f.row, f.fact, f.verdict, f.why, seen(f.seen)) for f in made.forecasts],
        )
    for f in [f for f in made.forecasts if f.others][:SHOWN]:
        source = str(dict(f.seen).get("source", "the probe"))
        out.head(f"{f.task}: {f.row} x {f.fact} ({f.guard}) -> {f.verdict}; {source} was asked just now")
        out.table(("row", "fact", "would be", "why not"), [(c.row, c.fact, c.verdict, c.why) for c in f.others])
    if len(made.forecasts) > SHOWN:
        out.say(f"which rows did not fire is shown for the first {SHOWN} tasks; --json has all of them")
    out.say(f"as of position {made.position}; carry it out with: journal recover --apply {made.token}")
