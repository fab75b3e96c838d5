"""
`rebuild` with a real engine: an image is built for a commit only if `name:<sha>` resolves and its label says so.

Building again changes nothing but the image's id (builds are not reproducible, deploy-facts 2.3), so the id that is
recorded is always read back from the engine. The tag `name:<sha>` is set after the label was checked: it is the commit
point. A moving tag comes last and only ever goes forward (R98).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from integrations.image.build import REVISION, BuildFailedError, Checkout, build, image_name
from integrations.image.config import ImageConfig
from integrations.image.engine import Engine, EngineError, Image
from journal.errors import JournalError
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, Scalar, evidence

IsAncestor = Callable[[str, str], Awaitable[bool | None]]
"""Asks whether the first commit is an ancestor of the second; None = cannot tell. Never raises."""

_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_TEXT_LIMIT = 400
PREVIOUS = "previous"
"""Where the image that a moving tag leaves stays within reach, for a rollback."""


class ImageStep:
    """
    Builds the image of what the merge landed.

    Args:
        config: Name, builder, moving tag.
        engine: The docker command line.
        checkout: Writes a commit's tree into a folder.
        is_ancestor: Orders two commits, so that a moving tag never goes backwards.
    """

    def __init__(self, config: ImageConfig, engine: Engine, checkout: Checkout, is_ancestor: IsAncestor) -> None:
        self._config, self._engine = config, engine
        self._checkout, self._is_ancestor = checkout, is_ancestor

    @property
    def traits(self) -> Traits:
        # No lane of its own: an edge holds one lane, and whoever moves tags stands behind a merge on the same edge.
        return Traits(Guard.REPEATABLE, irreversible=False, adopts=True)

    async def probe(self, call: Call) -> Finding:
        sha = self._target(call)
        if not sha:
            return _finding(Fact.UNKNOWN, reason=f"step {self._config.merge_step} left no landed commit")
        try:
            return await self._probe(call, sha)
        except EngineError as error:
            return _finding(Fact.UNKNOWN, reason=str(error)[:_TEXT_LIMIT], unreachable=error.unreachable)

    async def apply(self, call: Call) -> Reply:
        sha = self._target(call)
        if not sha:
            return _reply(Outcome.REJECTED, reason=f"step {self._config.merge_step} left no landed commit")
        try:
            return await self._apply(call, sha)
        except BuildFailedError as error:
            return _reply(Outcome.REJECTED, reason="build_failed", exit=error.code, tail=_clean(error.said))
        except JournalError as error:
            return _reply(Outcome.UNKNOWN, reason=_clean(str(error)))

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: a second build of the same commit is harmless."""

    async def _probe(self, call: Call, sha: str) -> Finding:
        tag = self._tag(call, sha)
        image = await self._engine.image(tag, call)
        if image is None:
            return _finding(Fact.ABSENT, tag=tag)
        seen: dict[str, Scalar] = {"tag": tag, "digest": image.id, "revision": image.labels.get(REVISION, "")}
        if seen["revision"] != sha:
            return _finding(Fact.CONFLICT, reason=f"its label {REVISION} is not the commit", **seen)
        if self._config.moving_tag is None:
            return _finding(Fact.OURS, **seen)
        fact, told = await self._moving(call, sha, image)
        return _finding(fact, **seen, **told)

    async def _moving(self, call: Call, sha: str, image: Image) -> tuple[Fact, dict[str, Scalar]]:
        """Say whether the moving tag is where it should be: at our image, or at a later commit's."""
        tag = self._tag(call, self._config.moving_tag or "")
        at = await self._engine.image(tag, call)
        if at is None:
            return Fact.ABSENT, {"moving": tag, "moving_at": ""}
        revision = at.labels.get(REVISION, "")
        seen: dict[str, Scalar] = {"moving": tag, "moving_at": at.id, "moving_revision": revision}
        if at.id == image.id:
            return Fact.OURS, seen
        if not _COMMIT.match(revision):
            why = f"{tag} has no label {REVISION}, so nobody can tell whether it would go backwards; remove that tag"
            return Fact.CONFLICT, {**seen, "reason": why}
        if revision == sha:
            return Fact.ABSENT, seen  # an earlier build of the same commit
        newer, older = await self._is_ancestor(sha, revision), await self._is_ancestor(revision, sha)
        if newer:
            return Fact.OURS, {**seen, "superseded_by": revision}
        if older:
            return Fact.ABSENT, seen
        if newer is None or older is None:
            return Fact.UNKNOWN, {**seen, "reason": f"cannot order {revision} and {sha}"}
        return Fact.CONFLICT, {**seen, "reason": f"{tag} holds a commit that is no ancestor"}

    async def _apply(self, call: Call, sha: str) -> Reply:
        tag = self._tag(call, sha)
        image = await self._engine.image(tag, call) or await self._build(call, sha, tag)
        if isinstance(image, Reply):
            return image
        if image.labels.get(REVISION) != sha:
            return _reply(Outcome.REJECTED, reason="label", tag=tag, revision=image.labels.get(REVISION, ""))
        if self._config.moving_tag is not None:
            fact, seen = await self._moving(call, sha, image)
            if fact is not Fact.ABSENT and fact is not Fact.OURS:
                return _reply(Outcome.UNKNOWN, **seen)
            if fact is Fact.ABSENT:
                await self._move(call, image, bool(seen["moving_at"]))
        return _reply(Outcome.APPLIED, tag=tag, digest=image.id, revision=sha)

    async def _build(self, call: Call, sha: str, tag: str) -> Image | Reply:
        built = await build(self._config, self._engine, self._checkout, call, sha)
        image = await self._engine.image(built, call)
        if image is None:
            return _reply(Outcome.UNKNOWN, reason=f"{built} is gone right after it was built")
        if image.labels.get(REVISION) != sha:
            return _reply(Outcome.REJECTED, reason="label", built=built, revision=image.labels.get(REVISION, ""))
        await self._set_tag(call, image.id, tag)
        if built != image.id:  # compose gave it a name of this attempt, which has done its work
            await self._engine.ask("image", "rm", "--no-prune", built, call=call)
        return image

    async def _move(self, call: Call, image: Image, leaves_one: bool) -> None:
        moving = self._tag(call, self._config.moving_tag or "")
        if leaves_one:
            await self._set_tag(call, moving, self._tag(call, PREVIOUS))
        await self._set_tag(call, image.id, moving)

    async def _set_tag(self, call: Call, source: str, tag: str) -> None:
        if await self._engine.ask("image", "tag", source, tag, call=call) is None:
            raise EngineError(command="docker image tag", code=1, said=f"{source} is gone")

    def _tag(self, call: Call, tag: str) -> str:
        return f"{image_name(self._config, call)}:{tag}"

    def _target(self, call: Call) -> str:
        landed = dict(call.outcomes.get(self._config.merge_step, ())).get("landed")
        return landed if isinstance(landed, str) and _COMMIT.match(landed) else ""


def _finding(fact: Fact, **seen: Scalar) -> Finding:
    return Finding(fact, evidence(source="docker", **seen))


def _reply(outcome: Outcome, **seen: Scalar) -> Reply:
    return Reply(outcome, evidence(source="docker", **seen))


def _clean(text: str) -> str:
    """Make foreign text storable: no control characters (R101)."""
    return "".join(char if char.isprintable() else " " for char in text)[-_TEXT_LIMIT:]
