"""
Helpers as containers: `docker run -d --name deploy-HASH`, kept after their end as the record of it (deploy-facts 1).

The daemon refuses a second container of a name. Labels say whose it is. It is never started again from here, has no
restart policy, and is not removed: exit code and log are what the successor reads.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from pydantic import Field

from integrations.deploy.handover import HandOverConfig, HandOverVerifiedConfig, Helper, NotStartedError, Order, State
from journal.children import Exit
from journal.errors import JournalError
from journal.ports import Call

PREFIX = "org.transition-journal."
_START_S = 60.0
_LISTED = 50
_STATES: dict[str, State] = {
    "created": "claimed",
    "running": "running",
    "paused": "running",
    "restarting": "running",
    "exited": "ended",
    "dead": "ended",
    "removing": "ended",
}


class ContainerDeployConfig(HandOverConfig):
    """`use = "container-deploy"`: the helper's image holds what deploys, and usually gets the Docker socket."""

    image: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,250}$")  # must be there: nothing is pulled
    volumes: tuple[str, ...] = ()  # as `docker run --volume` takes them
    network: str = Field(default="none", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,100}$")
    env: tuple[str, ...] = ()  # names of our environment that the helper needs
    program: tuple[str, ...] = Field(default=("docker",), min_length=1)


class ContainerVerifiedConfig(HandOverVerifiedConfig):
    """`use = "container-verified"`."""

    program: tuple[str, ...] = Field(default=("docker",), min_length=1)


class Docker(Protocol):
    """The docker command line; `integrations.image.engine.Engine` is one, handed in by the composition root."""

    async def run(self, *argv: str, call: Call, budget_s: float | None = None) -> Exit:
        """Run one command to its end; OSError = it was not started."""
        ...

    async def ask(self, *argv: str, call: Call) -> str | None:
        """Ask; None = no such thing, JournalError = no answer."""
        ...


class NoAnswerError(JournalError):
    """The daemon said something that nobody can read."""


class ContainerRecords:
    """What a Docker engine remembers of helpers."""

    def __init__(self, docker: Docker) -> None:
        self._docker = docker

    async def find(self, name: str, call: Call) -> Helper | None:
        said = await self._docker.ask("container", "inspect", "--format", "{{json .}}", name, call=call)
        return None if said is None else _helper(said)

    async def last(self, environment: str, call: Call) -> Helper | None:
        chosen = ("--all", "--no-trunc", "--last", str(_LISTED), "--filter", f"label={PREFIX}environment={environment}")
        listed = await self._docker.ask("container", "ls", *chosen, "--format", "{{.Names}}", call=call)
        for name in (listed or "").splitlines():  # the daemon lists the newest first
            helper = await self.find(name, call)
            if helper and (helper.state == "running" or (helper.state == "ended" and helper.code == 0)):
                return helper
        return None

    async def tail(self, name: str, call: Call) -> str:
        try:
            done = await self._docker.run("container", "logs", "--tail", "40", name, call=call)
        except OSError:
            return ""
        return "\n".join(part.decode("utf-8", "replace") for part in (done.out, done.err) if part).strip()


class ContainerHost(ContainerRecords):
    """Runs helpers on a Docker engine."""

    def __init__(self, config: ContainerDeployConfig, docker: Docker) -> None:
        super().__init__(docker)
        self._config = config

    async def start(self, order: Order, call: Call) -> str:
        options = ["--detach", "--pull", "never", "--restart", "no", "--name", order.name]
        options += ["--network", self._config.network]
        for word, value in order.labels.items():
            options += ["--label", f"{PREFIX}{word}={value}", "--env", f"TRANSITION_{word.upper()}={value}"]
        for volume in self._config.volumes:
            options += ["--volume", volume]
        for name in self._config.env:
            options += ["--env", name]
        try:
            done = await self._docker.run(
                "run", *options, self._config.image, *order.command, call=call, budget_s=_START_S
            )
        except OSError as error:
            raise NotStartedError(str(error)) from error
        return "" if done.code == 0 and not done.timed_out else f"docker run: exit {done.code}: {done.tail}"


def _helper(said: str) -> Helper:
    try:
        value: Any = json.loads(said)
        state, labels = value["State"], value["Config"]["Labels"] or {}
        status, code, error = str(state["Status"]), int(state["ExitCode"]), str(state.get("Error") or "")
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        message = f"docker container inspect: not what was expected: {problem!r}"
        raise NoAnswerError(message) from problem
    told = {name.removeprefix(PREFIX): str(text) for name, text in labels.items() if name.startswith(PREFIX)}
    if status not in _STATES:
        message = f"docker container inspect: the state '{status[:40]}' is unknown"
        raise NoAnswerError(message)
    broken = status == "created" and bool(error or code)
    return Helper(told, "broken" if broken else _STATES[status], code, error)
