"""Starting the detached deployer, and only when there is work that nobody does (R59)."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from integrations.deploy.config import SelfDeployConfig
from integrations.deploy.deployer import LOCK
from integrations.deploy.markers import all_initiated, result_path
from journal.children import child_env, run_child

_START_S = 20.0
_ROOT = Path(__file__).resolve().parents[2]


def deployer_argv(config: SelfDeployConfig) -> tuple[str, ...]:
    """Build the command line of the deployer, for us or for the host's own agent."""
    options = ["--folder", str(config.folder), "--environment", config.environment]
    options += ["--budget-s", f"{config.command_budget_s:g}"]
    options += [] if config.idempotent else ["--once"]
    options += ["--cwd", str(config.cwd)] if config.cwd else []
    return (sys.executable, "-m", "integrations.deploy.deployer", *options, "--", *config.command)


async def ensure_deployer(config: SelfDeployConfig) -> bool:
    """
    Start a deployer if a marker waits for its RESULT and none works; harmless to call at any time.

    Called when the service starts, and by `apply`. Idempotent by key, so that it never deploys twice; it is no part
    of any probe, since a probe changes nothing.

    Returns:
        Whether one was started.

    Raises:
        OSError: It could not be started.
        UnreadableError: The folder cannot be read.
    """
    if config.starts == "agent" or not _waiting(config) or _working(config.folder):
        return False
    index = deployer_argv(config).index("--folder")
    argv = (*deployer_argv(config)[:index], "--detach", *deployer_argv(config)[index:])
    # No term: the deployer must not carry the task's lock, or its successor could never take the task over (E5).
    started = await run_child(argv, budget_s=_START_S, env=child_env(config.env), cwd=_ROOT)
    if started.code != 0:
        message = f"the deployer did not start: exit {started.code}, {started.tail}"
        raise OSError(message)
    return True


def _waiting(config: SelfDeployConfig) -> bool:
    markers, _ = all_initiated(config.folder)
    mine = (marker for marker in markers if marker.environment == config.environment)
    return any(not result_path(config.folder, marker.key).exists() for marker in mine)


def _working(folder: Path) -> bool:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
