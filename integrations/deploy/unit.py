"""
Helpers as units of systemd: `systemd-run --unit=deploy-HASH`, in a control group of their own (deploy-facts 1).

systemd refuses a second unit of a loaded name. `RemainAfterExit` and the absence of `--collect` keep the record of a
unit that ended, good or bad, until the machine restarts; after that what runs tells (a new version supersedes).
"""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import BaseModel, Field

from integrations.deploy.handover import HandOverConfig, HandOverVerifiedConfig, Helper, NotStartedError, Order, State
from journal.children import Exit, child_env, run_child
from journal.errors import JournalError
from journal.ports import Call

_START_S = 60.0
_ASK_S = 20.0
_SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus", "Environment")
_PREFIX = "TRANSITION_"


class Systemd(BaseModel):
    """Which systemd, and how it is reached."""

    user: bool = False  # the user's own systemd instead of the system's
    systemctl: tuple[str, ...] = Field(default=("systemctl",), min_length=1)


class UnitDeployConfig(HandOverConfig, Systemd):
    """`use = "unit-deploy"`: the command runs as a transient unit of the host's systemd."""

    cwd: Path | None = None
    env: tuple[str, ...] = ()  # names of our environment that the command needs
    systemd_run: tuple[str, ...] = Field(default=("systemd-run",), min_length=1)


class UnitVerifiedConfig(HandOverVerifiedConfig, Systemd):
    """`use = "unit-verified"`."""


class NoAnswerError(JournalError):
    """systemd did not answer, or not in words we know."""


class UnitRecords:
    """What the host's systemd remembers of helpers."""

    def __init__(self, systemd: Systemd) -> None:
        self._systemctl = systemd.systemctl
        self._whose = ("--user",) if systemd.user else ("--system",)

    async def find(self, name: str, call: Call) -> Helper | None:
        shown = await self._show(f"{name}.service", call)
        if shown.get("LoadState") == "not-found":
            return None
        return _helper(shown)

    async def last(self, environment: str, call: Call) -> Helper | None:
        """None: units keep no order, and what runs is asked beside."""
        return None

    async def tail(self, name: str, call: Call) -> str:
        argv = (*self._systemctl, *self._whose, "status", "--no-pager", "--lines=20", f"{name}.service")
        try:
            return (await self._run(argv, call, _ASK_S)).text
        except OSError:
            return ""

    async def _show(self, unit: str, call: Call) -> dict[str, str]:
        argv = (*self._systemctl, *self._whose, "show", f"--property={','.join(_SHOWN)}", unit)
        try:
            done = await self._run(argv, call, _ASK_S)
        except OSError as error:
            raise NoAnswerError(str(error)) from error
        shown = dict(line.partition("=")[::2] for line in done.text.splitlines())
        if done.code != 0 or done.timed_out or not shown.get("LoadState"):
            message = f"systemctl show: exit {done.code}: {done.tail}"
            raise NoAnswerError(message)
        return shown

    async def _run(self, argv: tuple[str, ...], call: Call, budget_s: float, *names: str) -> Exit:
        # The client carries the task's lock for as long as it asks; the unit is systemd's child and never gets it.
        term = call.term if call.term.fd >= 0 else None
        env = child_env(("DBUS_SESSION_BUS_ADDRESS", *names))
        return await run_child(argv, budget_s=min(budget_s, call.budget_s), term=term, env=env)


class UnitHost(UnitRecords):
    """Runs helpers on the host's systemd."""

    def __init__(self, config: UnitDeployConfig) -> None:
        super().__init__(config)
        self._config = config

    async def start(self, order: Order, call: Call) -> str:
        options = ["--no-block", "--quiet", f"--unit={order.name}", "--property=RemainAfterExit=yes"]
        options += [f"--working-directory={self._config.cwd}"] if self._config.cwd else []
        options += [f"--setenv={_PREFIX}{word.upper()}={value}" for word, value in order.labels.items()]
        options += [f"--setenv={name}" for name in self._config.env]
        try:
            argv = (*self._config.systemd_run, *self._whose, *options, "--", *order.command)
            done = await self._run(argv, call, _START_S, *self._config.env)
        except OSError as error:
            raise NotStartedError(str(error)) from error
        return "" if done.code == 0 and not done.timed_out else f"systemd-run: exit {done.code}: {done.tail}"


def _helper(shown: dict[str, str]) -> Helper:
    try:
        pairs = shlex.split(shown.get("Environment", ""))
        code = int(shown.get("ExecMainStatus") or 0)
    except ValueError as error:
        message = f"systemctl show: not what was expected: {error}"
        raise NoAnswerError(message) from error
    words = dict(pair.partition("=")[::2] for pair in pairs)
    labels = {name.removeprefix(_PREFIX).lower(): text for name, text in words.items() if name.startswith(_PREFIX)}
    ended_well = shown.get("Result") == "success"  # a signal or a time-out has no exit code
    return Helper(labels, _state(shown), code or (0 if ended_well else 1))


def _state(shown: dict[str, str]) -> State:
    match shown.get("ActiveState"), shown.get("SubState"):
        case ("active", "exited") | ("inactive" | "failed", _):
            return "ended"
        case ("activating" | "active" | "deactivating" | "reloading", _):
            return "running"
        case other:
            message = f"systemctl show: the state {other} is unknown"
            raise NoAnswerError(message)
