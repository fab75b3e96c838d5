"""The operator's verbs as forms: which fit a task now, and what each will do, in one sentence before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from journal.state import TaskState
from journal.words import Hold


@dataclass(frozen=True, slots=True)
class Verb:
    """One form."""

    name: str
    label: str
    effect: str  # what happens, named before it is confirmed
    button: str
    danger: bool = False
    fields: tuple[str, ...] = ("reason",)


def verbs_for(task: str, state: TaskState, *, alive: bool) -> tuple[Verb, ...]:
    """
    The verbs that fit a task as it is; the journal decides anew when one is said.

    Args:
        task: Its id.
        state: The fold of its events.
        alive: Its lock is held at this moment.
    """
    match state.hold:
        case Hold.DONE | Hold.CANCELED:
            return (_reopen(task),)
        case Hold.PARKED:
            settle = (_settle(task, state),) if state.current is not None and _same(state) else ()
            return (_retry(task), *settle, _cancel(task, state))
        case Hold.PAUSED:
            return (_resume(task), _cancel(task, state))
        case _ if state.owner and alive:
            return (_pause(task, state), _release(task), _cancel(task, state))
        case _:
            return (_advance(task, state), _pause(task, state), _cancel(task, state))


def _same(state: TaskState) -> bool:
    return state.plan is not None and state.plan.source == state.stage


def _step(state: TaskState) -> str:
    return state.current.name if state.current else "the step"


def _advance(task: str, state: TaskState) -> Verb:
    effect = f"A run takes {task} now and tries to move it on from {state.stage}. Its steps act on the world."
    return Verb("advance", "Advance", effect, f"Advance {task}", fields=())


def _pause(task: str, state: TaskState) -> Verb:
    effect = f"Nobody drives {task} until it is resumed. What is running loses its next write."
    if state.open:
        effect += f" The attempt of {_step(state)} stays in doubt meanwhile."
    return Verb("pause", "Pause", effect, f"Pause {task}")


def _resume(task: str) -> Verb:
    effect = f"{task} may be driven again, and the service looks at it at once."
    return Verb("resume", "Resume", effect, f"Resume {task}")


def _retry(task: str) -> Verb:
    effect = f"{task} may be driven again with new attempts. The world is asked before anything is repeated."
    return Verb("retry", "Retry", effect, f"Retry {task}")


def _cancel(task: str, state: TaskState) -> Verb:
    effect = f"{task} ends before its next irreversible call. Nothing that was done is undone."
    if state.open:
        effect += f" {_step(state)} is in doubt: it is settled first."
    return Verb("cancel", "Cancel", effect, f"Cancel {task}", danger=True)


def _release(task: str) -> Verb:
    effect = f"The run that owns {task} is ended and fenced; the task is free under a new epoch."
    return Verb("release", "Release", effect, f"Release {task}", danger=True)


def _settle(task: str, state: TaskState) -> Verb:
    effect = (
        f"You say how attempt {state.attempts} of {_step(state)} ended, and you are believed: look at the world first."
    )
    return Verb("settle", "Settle", effect, f"Settle {task}", danger=True, fields=("as", "evidence", "reason"))


def _reopen(task: str) -> Verb:
    effect = f"{task} begins a new generation: every step may run again, under new keys."
    return Verb("reopen", "Reopen", effect, f"Reopen {task}", danger=True, fields=("stage", "reason"))
