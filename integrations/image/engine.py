"""
The Docker engine through its command line: argument lists, and answers that say whether they are answers.

"No such image" and "the daemon cannot be reached" leave with the same exit code 1 (deploy-facts 2.1), so only words
that say "no such ..." mean absent; whatever else fails is `EngineError`, which every reader takes for unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journal.children import Exit, child_env, run_child
from journal.errors import JournalError
from journal.ports import Call

_ANSWER_LIMIT = 4 << 20
_ENVIRONMENT = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION",
    "DOCKER_BUILDKIT",
    "BUILDX_CONFIG",
)
_MISSING = re.compile(r"no such (?:image|container|object)", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"cannot connect to the docker daemon|error during connect|permission denied while trying to connect"
    r"|connection refused|is the docker daemon running",
    re.IGNORECASE,
)


class EngineError(JournalError):
    """The engine did not answer: not reachable, ended by its budget, or an answer nobody can read. Nothing is known."""

    def __init__(self, *, command: str, code: int, said: str) -> None:
        self.command, self.code, self.said = command, code, said
        super().__init__(f"{command}: exit {code}: {said or 'it said nothing'}")

    @property
    def unreachable(self) -> bool:
        """The client found no daemon to talk to."""
        return bool(_UNREACHABLE.search(self.said))


@dataclass(frozen=True, slots=True)
class Image:
    """One image as the engine shows it now, whatever anybody declared (R98)."""

    id: str  # digest of its configuration, "sha256:..."
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs `docker`; children carry the task's lock and end by the call's budget (E5, E9)."""

    program: tuple[str, ...] = ("docker",)

    async def run(self, *argv: str, call: Call, cwd: Path | None = None, budget_s: float | None = None) -> Exit:
        """
        Run one command of the client to its end, whatever that is.

        Raises:
            OSError: It was not started, so nothing has happened.
        """
        return await run_child(
            (*self.program, *argv),
            budget_s=call.budget_s if budget_s is None else min(budget_s, call.budget_s),
            term=call.term if call.term.fd >= 0 else None,
            env=child_env(_ENVIRONMENT),
            cwd=cwd,
            keep=_ANSWER_LIMIT,
        )

    async def ask(self, *argv: str, call: Call) -> str | None:
        """
        Ask about one thing; None is the daemon's own "no such thing".

        Raises:
            EngineError: Everything that is neither an answer nor that.
        """
        command = " ".join((*self.program, *argv[:2]))
        try:
            done = await self.run(*argv, call=call)
        except OSError as error:
            raise EngineError(command=command, code=127, said=str(error)) from error
        whole = not done.timed_out and not done.left_behind and len(done.out) < _ANSWER_LIMIT
        if done.code == 0 and whole:
            return done.text
        if done.code == 1 and whole and _MISSING.search(done.tail):
            return None
        raise EngineError(command=command, code=done.code, said=done.tail)

    async def image(self, reference: str, call: Call) -> Image | None:
        """
        Look at an image by tag or id; None if the engine has none of that name.

        Raises:
            EngineError: Nothing is known.
        """
        said = await self.ask("image", "inspect", "--format", "{{json .}}", reference, call=call)
        if said is None:
            return None
        value = parsed(said, "docker image inspect")
        labels = (value.get("Config") or {}).get("Labels") or {}
        if not isinstance(value.get("Id"), str) or not isinstance(labels, dict):
            raise EngineError(command="docker image inspect", code=0, said="its answer is no description of an image")
        return Image(value["Id"], {str(k): str(v) for k, v in labels.items()})


def parsed(said: str, command: str) -> dict[str, Any]:
    """
    Read one JSON object of an answer.

    Raises:
        EngineError: It is none.
    """
    try:
        value = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise EngineError(command=command, code=0, said=f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise EngineError(command=command, code=0, said="not a JSON object")
    return value
