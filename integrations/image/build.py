"""Building: from a commit's tree to an image that has no name yet. The name is the commit point and comes later."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from integrations.image.config import ImageConfig
from integrations.image.engine import Engine, EngineError
from journal.children import Exit, child_env, run_child
from journal.errors import JournalError
from journal.ports import Call

REVISION = "org.opencontainers.image.revision"
"""The label that ties an image to a full commit id."""

Checkout = Callable[[Call, str, Path], Awaitable[None]]
"""Writes the tree of a commit into an empty folder; raises JournalError. Handed in by the composition root."""


class BuildFailedError(JournalError):
    """The builder said no. No tag was set, so as far as anybody can ask nothing has happened."""

    def __init__(self, *, code: int, said: str) -> None:
        self.code, self.said = code, said
        super().__init__(f"the build ended with {code}: {said}")


async def build(config: ImageConfig, engine: Engine, checkout: Checkout, call: Call, sha: str) -> str:
    """
    Build what a commit holds.

    Returns:
        What names the image: its id, or a tag of this attempt's own.

    Raises:
        BuildFailedError: The builder refused.
        EngineError: No daemon, or the build was ended; whatever it left has no tag that anybody looks for.
        JournalError: The tree could not be read.
    """
    with tempfile.TemporaryDirectory(prefix="image-", dir=config.scratch, ignore_cleanup_errors=True) as place:
        tree = Path(place) / "tree"
        tree.mkdir()
        await checkout(call, sha, tree)
        if config.builder == "docker":
            return await _docker(config, engine, call, sha, tree)
        return await _compose(config, call, sha, tree)


async def _docker(config: ImageConfig, engine: Engine, call: Call, sha: str, tree: Path) -> str:
    ids = tree.parent / "id"
    # The label on the command line is applied last: a killed build leaves no intermediate image that carries it,
    # as one with a LABEL line in its Dockerfile does (deploy-facts 2.3).
    options = ("--label", f"{REVISION}={sha}", "--iidfile", str(ids), "--file", str(tree / config.file))
    try:
        done = await engine.run("build", *options, str(tree), call=call)
    except OSError as error:
        raise BuildFailedError(code=127, said=str(error)) from error
    _check(done, "docker build")
    try:
        return ids.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(command="docker build", code=0, said=f"it left no image id: {error}") from error


async def _compose(config: ImageConfig, call: Call, sha: str, tree: Path) -> str:
    # `compose build` has no --label; an override file sets label and name, and JSON is YAML.
    name = f"{image_name(config, call)}:building-{sha[:12]}-{call.epoch}.{call.attempt}"
    service = {"image": name, "build": {"labels": {REVISION: sha}}}
    override = tree.parent / "override.json"
    override.write_text(json.dumps({"services": {config.service: service}}))
    files = ("--file", str(tree / config.file), "--file", str(override))
    argv = (*config.compose, "--project-directory", str(tree), *files, "build", config.service)
    try:
        done = await run_child(
            argv,
            budget_s=call.budget_s,
            term=call.term if call.term.fd >= 0 else None,
            env=child_env(("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_BUILDKIT")),
            cwd=tree,
        )
    except OSError as error:
        raise BuildFailedError(code=127, said=str(error)) from error
    _check(done, "compose build")
    return name


def image_name(config: ImageConfig, call: Call) -> str:
    """The image's name without a tag."""
    return config.image.replace("{repo}", call.subject.repo.lower())


def _check(done: Exit, command: str) -> None:
    ended = done.timed_out or done.code < 0 or done.left_behind
    failure = EngineError(command=command, code=done.code, said="ended by its budget" if ended else done.tail)
    if ended or (done.code != 0 and failure.unreachable):
        raise failure
    if done.code != 0:
        raise BuildFailedError(code=done.code, said=done.tail)
