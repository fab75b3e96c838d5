"""`journal prove`: every crash and race of the user's own pipeline, searched over simulated worlds (issue "Proof")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import Given, given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from integrations.cli.output import Output
    from journal.plan import EdgePlan
    from journal.words import Guard
    from recovery.prove.story import Failure, Progress, Report, Searched

WRITTEN = Path("journal-prove.replay.json")


def prove(
    ctx: typer.Context,
    pipeline: Annotated[
        Path | None, typer.Argument(help="A configuration; by default the one that all commands use.")
    ] = None,
    budget: Annotated[int | None, typer.Option(help="About how many worlds to visit.", min=1000)] = None,
    seed: Annotated[int, typer.Option(help="For the random walks at the end.")] = 0,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Follow a schedule that failed before, and nothing else.")
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", metavar="STEP=GUARD", help="Let STEP behave as GUARD, whatever it declares."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", help="Take an assumption away: lock-holds, commits-survive, fresh-probes."),
    ] = None,
    write: Annotated[Path, typer.Option("--write", help="Where a schedule that fails is written.")] = WRITTEN,
) -> None:
    """
    Search every crash and race of a pipeline. Steps are simulated by their declared guard; nothing real is touched.

    Exits 1 with the shortest schedule that fails, or if an edge is too large for the budget.

    journal prove
    journal prove --budget 2000000
    journal prove --assume merge_pr=probed
    journal prove --replay journal-prove.replay.json
    """
    from integrations.cli.output import Output
    from recovery.prove.story import DEFAULT_BUDGET
    from recovery.prove.story import prove as search

    options = given(ctx)
    out = Output(options)
    if replay is not None:
        raise typer.Exit(_replay(out, replay))
    way, detours = _plans(options, pipeline)
    really, premises = _really((*way, *detours), assume or []), _assumed(without or [])
    with _progress(out) as progress:
        report = search(
            way,
            budget=budget or DEFAULT_BUDGET,
            seed=seed,
            assume=premises,
            really=really,
            progress=progress,
            detours=detours,
        )
    where = _written(report.failure, write) if report.failure else ""
    if out.json:
        out.document(_data(report, where))
    else:
        _show(out, report, where)
    raise typer.Exit(0 if report.proved else 1)


def _plans(options: Given, pipeline: Path | None) -> tuple[tuple[EdgePlan, ...], tuple[EdgePlan, ...]]:
    """The edges from the first stage forward, and those that only a rollback leads to."""
    from integrations.settings import load
    from integrations.wiring import build
    from journal.ports import Subject

    settings = load(pipeline, db=options.db) if pipeline is not None else options.settings()
    made = build(settings).pipeline
    route = made.route(Subject("PROVE-1", "a/repository", "a-branch"))
    way: dict[str, EdgePlan] = {}
    stage = made.first
    while stage not in way and (plan := route.edge(stage)) is not None:
        way[stage] = plan
        stage = plan.target
    others = (route.edge(e.source) for e in made.edges if e.source not in way)
    return tuple(way.values()), tuple(plan for plan in others if plan is not None)


def _really(plans: tuple[EdgePlan, ...], assume: list[str]) -> Mapping[str, Guard]:
    """
    Read `STEP=GUARD`.

    Raises:
        InvalidInputError: There is no such step or guard, or the step has no effect that could go wrong.
    """
    from journal.errors import InvalidInputError
    from journal.words import Guard

    effects = [s.name for p in plans for s in p.steps if s.guard is not Guard.AWAITED]
    guards = [str(g) for g in Guard if g is not Guard.AWAITED]
    really: dict[str, Guard] = {}
    for text in assume:
        step, _, guard = text.partition("=")
        if step not in effects:
            why = f"'{step}' is no step with an effect; there are: {', '.join(effects)}"
            raise InvalidInputError(what="--assume STEP=GUARD", why=why)
        if guard not in guards:
            raise InvalidInputError(what="--assume STEP=GUARD", why=f"'{guard}' is none of {', '.join(guards)}")
        really[step] = Guard(guard)
    return really


def _assumed(without: list[str]) -> frozenset[str]:
    from journal.errors import InvalidInputError
    from recovery.prove.story import ASSUMPTIONS

    for name in without:
        if name not in ASSUMPTIONS:
            raise InvalidInputError(what="--without", why=f"'{name}' is none of {', '.join(ASSUMPTIONS)}")
    return frozenset(ASSUMPTIONS) - set(without)


@contextmanager
def _progress(out: Output) -> Iterator[Progress | None]:
    """A line that is written anew, for somebody who looks on; nothing where the output goes into a file."""
    if out.json or not out.terminal:
        yield None
        return
    with out.console.status("searching") as status:

        def tell(name: str, level: str, states: int) -> None:
            status.update(f"{name}: {level}, {states:,} worlds")

        yield tell


def _written(failure: Failure, file: Path) -> str:
    """Where the schedule was written; empty if it could not be."""
    from integrations.cli.output import complain

    try:
        file.write_text(failure.schedule.to_text(), "utf-8")
    except OSError as error:
        complain(f"{file} cannot be written: {error.strerror}")
        return ""
    return str(file)


def _replay(out: Output, file: Path) -> int:
    """Follow a schedule; 1 if it still leads where no task may be."""
    from journal.errors import InvalidInputError
    from recovery.prove.replay import read_schedule
    from recovery.prove.replay import replay as follow

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(what=str(file), why=f"cannot be read: {error}") from error
    told = follow(read_schedule(text))
    failed = bool(told.violation) or (not told.lost and read_schedule(text).stuck)
    if out.json:
        out.document(
            {"failed": failed, "violation": told.violation, "lost": told.lost, "ending": told.ending}
            | {"effects": told.effects, "story": list(told.story)}
        )
        return int(failed)
    _story(out, told.story)
    if told.violation:
        out.say(f"still fails: {told.violation}", "fault")
    elif failed:
        out.say("still gets stuck there", "fault")
    elif told.lost:
        out.say(f"no longer possible from here: {told.lost}", "ok")
    else:
        out.say(f"no longer fails; the task {told.ending or 'goes on'}", "ok")
    return int(failed)


# -- what is told ------------------------------------------------------------------------------------------------------


def _data(report: Report, where: str) -> dict[str, Any]:
    failure = report.failure
    return {
        "proved": report.proved,
        "states": report.states,
        "walks": report.walks,
        "walked": report.walked,
        "seed": report.seed,
        "assumed": list(report.assumed),
        "really": {name: str(guard) for name, guard in report.really},
        "edges": [_searched(e) for e in report.edges],
        "whole": _searched(report.whole) if report.whole else None,
        "failure": failure
        and {"where": failure.where, "why": failure.why, "story": list(failure.story), "replay": where},
    }


def _searched(found: Searched) -> dict[str, Any]:
    return {
        "name": found.name,
        "level": found.level,
        "states": found.states,
        "moves": found.moves,
        "spent": found.spent,
        "seconds": round(found.seconds, 1),
        "endings": dict(found.endings),
        "matrix": {point: dict(row) for point, row in found.matrix.items()},
    }


def _show(out: Output, report: Report, where: str) -> None:
    parts = (*report.edges, *((report.whole,) if report.whole else ()))
    for found in parts:
        _matrix(out, found)
    out.head("searched")
    columns = ("what", "misfortunes", "worlds", "schedules", "in all", "seconds")
    rows = [
        (f.name, f.level or "not even without any", f"{f.states:,}", f"{f.moves:,}", f"{f.spent:,}", f"{f.seconds:.1f}")
        for f in parts
    ]
    out.table(columns, rows)
    if report.walks:
        walks = f"{report.walks:,} random walks of {report.walked:,} moves in all"
        out.say(f"and {walks}, every misfortune at once, seed {report.seed}")
    for name, guard in report.really:
        out.say(f"assumed: {name} really is {guard}", "note")
    if report.failure is not None:
        _failed(out, report.failure, where)
    elif report.proved:
        out.say("proved within these bounds: nothing twice, nothing forgotten, nobody stuck", "ok")
    else:
        short = ", ".join(e.name for e in report.edges if "crash" not in e.level)
        out.say(f"nothing failed, but the budget did not reach a crash of {short}; raise --budget", "fault")


def _matrix(out: Output, found: Searched) -> None:
    """Crash point by ending: from how many worlds right after that crash the ending can still be reached."""
    if not found.matrix:
        return
    endings = sorted({ending for row in found.matrix.values() for ending in row})
    out.head(f"{found.name}: a crash, and how the task can end afterwards (worlds)")
    rows = [(point, *(row.get(e, "") for e in endings)) for point, row in sorted(found.matrix.items())]
    out.table(("the process", *endings), rows)


def _failed(out: Output, failure: Failure, where: str) -> None:
    out.head(f"{failure.where} fails: {failure.why}")
    _story(out, failure.story)
    if where:
        out.say(f"replay it with: journal prove --replay {where}")


def _story(out: Output, story: tuple[str, ...]) -> None:
    for n, line in enumerate(story, 1):
        out.say(f"{n:3}. {line}", "fault" if line.startswith("!!") else "")
