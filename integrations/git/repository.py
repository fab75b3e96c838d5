"""
A bare repository: what can be asked of it and written to it (git-facts 2, 3 and 7).

How git is called, and what counts as no answer, is `integrations.git.commands`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from integrations.git import locks
from integrations.git.commands import Commands, GitError
from journal import names
from journal.errors import InvalidInputError

NOTHING = "0" * 40
"""The old value of a ref that must not exist yet."""
_LOST = re.compile(
    r"cannot lock ref '([^']+)': (?:is at|reference already exists|unable to resolve|reference is missing)"
)
_LOCK_FILE = re.compile(r"Unable to create '([^']+\.lock)': File exists")


class RefMovedError(GitError):
    """A ref had another value than expected; the whole transaction changed nothing."""

    def __init__(self, *, ref: str, said: str) -> None:
        self.ref = ref
        super().__init__(command="update-ref", code=128, said=said)


class LeftoverLockError(GitError):
    """Somebody holds, or a killed git left behind, a lock file; every update of that ref fails until it is gone."""

    def __init__(self, *, path: str, said: str) -> None:
        self.path = path
        super().__init__(command="update-ref", code=128, said=said)


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """One line of a ref transaction: `new` empty only verifies that the ref still has the value `old`."""

    ref: str
    new: str
    old: str


@dataclass(frozen=True, slots=True)
class Author:
    """Who stands in a commit, and when: fixed values give the same commit id on every retry (git-facts 7)."""

    name: str
    email: str
    at_s: int  # seconds since 1970, UTC

    def environment(self) -> dict[str, str]:
        """The variables that git reads."""
        date = f"@{self.at_s} +0000"
        return {
            "GIT_AUTHOR_NAME": self.name,
            "GIT_AUTHOR_EMAIL": self.email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": self.name,
            "GIT_COMMITTER_EMAIL": self.email,
            "GIT_COMMITTER_DATE": date,
        }


@dataclass(frozen=True, slots=True)
class Repositories:
    """Where the bare repository of each name lies; the composition root hands this to the adapters."""

    paths: Mapping[str, Path]

    def __call__(self, name: str) -> Repository:
        """
        Find the repository called `name`.

        Raises:
            InvalidInputError: No path is configured for it.
        """
        path = self.paths.get(name)
        if path is None:
            raise InvalidInputError(what=f"repository '{names.shown(name)}'", why="no path is configured for it")
        return Repository(path)


class Repository(Commands):
    """One repository on this machine. Ids are full, answers are whole, failures are `GitError`."""

    __slots__ = ()

    # -- questions ---------------------------------------------------------------------------------------------

    async def is_shallow(self) -> bool:
        """Whether history was cut off: then "no" is no answer (git-facts 3)."""
        return (await self.ask("rev-parse", "--is-shallow-repository")).text != "false"

    async def refs(self, *wanted: str) -> tuple[str, ...]:
        """The object ids of the refs, in order, "" for one that does not exist, all read by one command."""
        done = await self.ask("for-each-ref", "--format=%(objectname) %(refname)", *wanted)
        if done.err:
            raise GitError(command="for-each-ref", code=done.code, said=done.tail)  # "ignoring broken ref" exits 0
        found = {name: sha for sha, _, name in (line.partition(" ") for line in done.text.splitlines())}
        return tuple(found.get(ref, "") for ref in wanted)

    async def read_ref(self, ref: str) -> str:
        """The object id of one ref, "" when it does not exist."""
        return (await self.refs(ref))[0]

    async def has_commit(self, sha: str) -> bool:
        """Whether the commit with this full id is stored here."""
        done = await self.git("cat-file", "-e", f"{names.commit_id(sha)}^{{commit}}")
        if done.code == 0:
            return True
        # A missing object is exit 1 as a plain name and 128 when peeled; which of them depends on the version.
        plain = await self.git("cat-file", "-e", sha)
        if plain.code == 1:
            return False
        raise GitError(command="cat-file", code=done.code, said=done.tail)

    async def commit_of(self, sha: str) -> str:
        """The commit that an object id leads to: itself, or what an annotated tag names."""
        return (await self.ask("rev-parse", "--verify", "-q", f"{names.commit_id(sha)}^{{commit}}")).text

    async def tree_of(self, sha: str) -> str:
        """The tree of a commit."""
        return (await self.ask("rev-parse", "--verify", "-q", f"{names.commit_id(sha)}^{{tree}}")).text

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `old` is reachable from `new`: yes, no, or `GitError` for "cannot tell"; only 0 and 1 are answers."""
        argv = ("merge-base", "--is-ancestor", names.commit_id(old), names.commit_id(new))
        return (await self.ask(*argv, answers=(0, 1))).code == 0

    async def merge_base(self, one: str, two: str) -> str:
        """The best common ancestor, "" for unrelated histories."""
        argv = ("merge-base", names.commit_id(one), names.commit_id(two))
        done = await self.ask(*argv, answers=(0, 1))
        return done.text if done.code == 0 else ""

    async def commit_time_s(self, sha: str) -> int:
        """When the commit was made, in seconds since 1970."""
        return int((await self.ask("show", "-s", "--format=%ct", names.commit_id(sha))).text)

    async def object_text(self, sha: str) -> str:
        """A commit or tag as stored: headers, blank line, message."""
        return (await self.ask("cat-file", "-p", names.commit_id(sha))).text

    async def revisions(self, *argv: str) -> list[str]:
        """The lines of `rev-list`."""
        return (await self.ask("rev-list", *argv, "--")).text.splitlines()

    async def messages(self, span: str, said: str, *options: str) -> list[tuple[str, str]]:
        """(id, message) of the commits in `span`, newest first, whose message contains the fixed text `said`."""
        argv = ("log", "-z", "--format=%H%n%B", "--fixed-strings", f"--grep={said}", *options, span, "--")
        records = (await self.ask(*argv)).out.decode("utf-8", "replace").split("\0")
        return [(record[:40], record[41:]) for record in records if record]

    async def ref_messages(self, under: str) -> list[str]:
        """The messages of what every ref below `under` names: of the tag, where it is one."""
        records = (await self.ask("for-each-ref", "--format=%(contents)%00", under)).out.decode("utf-8", "replace")
        return [record.strip("\n") for record in records.split("\0") if record.strip("\n")]

    async def changed_files(self, old: str, new: str) -> tuple[str, ...]:
        """Names of the files that differ between two commits, a rename as two names."""
        argv = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", names.commit_id(old), names.commit_id(new))
        listed = (await self.ask(*argv)).out.decode("utf-8", "surrogateescape")
        return tuple(name for name in listed.split("\0") if name)

    async def patch_id(self, old: str, new: str) -> str:
        """The stable patch id of the difference, white space ignored; "" when there is none. A hint, never a proof."""
        argv = ("diff-tree", "-p", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames")
        diff = await self.ask(*argv, names.commit_id(old), names.commit_id(new))
        return (await self.ask("patch-id", "--stable", stdin=diff.out)).text.partition(" ")[0]

    async def read_file(self, commit: str, path: str) -> bytes | None:
        """The content of a regular file at a commit; None when the tree holds no such file."""
        listed = (await self.ask("ls-tree", "-z", names.commit_id(commit), "--", path)).text
        mode, _, rest = listed.rstrip("\0").partition(" ")
        kind, _, rest = rest.partition(" ")
        if kind != "blob" or not mode.startswith("100"):
            return None
        return (await self.ask("cat-file", "blob", rest.partition("\t")[0])).out

    async def pack(self, commit: str, file: Path) -> None:
        """Write the tree of a commit into a tar file."""
        await self.ask("archive", "--format=tar", f"--output={file}", names.commit_id(commit))

    # -- objects: harmless until a ref names them --------------------------------------------------------------

    async def merge_tree(self, ours: str, theirs: str) -> str:
        """The tree of the clean merge of two commits, "" when they conflict."""
        argv = ("merge-tree", "--write-tree", "--no-messages", names.commit_id(ours), names.commit_id(theirs))
        done = await self.ask(*argv, answers=(0, 1))
        if not done.out:  # 2.39 says 1 for a bad name too; only a printed tree makes it a conflict (git-facts 2)
            raise GitError(command="merge-tree", code=done.code, said=done.tail)
        return done.text.splitlines()[0] if done.code == 0 else ""

    async def write_commit(self, tree: str, parents: Sequence[str], message: str, author: Author) -> str:
        """Store a commit; equal arguments give the same id."""
        argv = ["commit-tree", tree]
        for parent in parents:
            argv += ["-p", parent]
        return (await self.ask(*argv, stdin=message.encode(), extra=author.environment())).text

    async def write_tag(self, commit: str, message: str, author: Author) -> str:
        """Store an annotated tag on a commit, for a marker that no commit of ours can carry (fast-forward)."""
        who = f"tagger {author.name} <{author.email}> {author.at_s} +0000"
        body = f"object {commit}\ntype commit\ntag transition\n{who}\n\n{message}"
        return (await self.ask("mktag", stdin=body.encode())).text

    async def write_file_tree(self, path: str, content: bytes) -> str:
        """Store a tree that holds one file, and say its id."""
        blob = (await self.ask("hash-object", "-w", "--stdin", stdin=content)).text
        return (await self.ask("mktree", stdin=f"100644 blob {blob}\t{path}\n".encode())).text

    # -- refs --------------------------------------------------------------------------------------------------

    async def transact(self, updates: Sequence[RefUpdate], reason: str) -> None:
        """
        Move refs, all or nothing for every value that is compared (git-facts 7).

        Git renames one ref after the other in the given order (seen with strace, 2.39.5), so a kill in between leaves
        a prefix of `updates` done: the first one is the effect and must be recognizable without those after it. Lock
        files that are old and belong to no living git are removed, then the transaction is tried once more.

        Raises:
            RefMovedError: A ref had another value; nothing changed.
            LeftoverLockError: A ref is locked; nothing changed.
            GitError: Anything else; what happened is unknown.
        """
        lines = ["start", *(_line(update) for update in updates), "prepare", "commit"]
        script = "".join(f"{line}\0" for line in lines).encode()
        code, said = await self._update_refs(script, reason)
        if (left := _LOCK_FILE.search(said)) and locks.remove_if_stale(self.path, Path(left[1])):
            for name in ("HEAD", *(update.ref for update in updates)):  # a killed transaction leaves all of its locks
                locks.remove_if_stale(self.path, self.path / f"{name}.lock")
            code, said = await self._update_refs(script, reason)
        if code == 0:
            return
        if left := _LOCK_FILE.search(said):
            raise LeftoverLockError(path=left[1], said=said[:400])
        if lost := _LOST.search(said):
            raise RefMovedError(ref=lost[1], said=said[:400])
        raise GitError(command="update-ref", code=code, said=said[:400])

    async def _update_refs(self, script: bytes, reason: str) -> tuple[int, str]:
        done = await self.git("update-ref", "-m", reason, "--stdin", "-z", stdin=script)
        return done.code, done.err.decode("utf-8", "replace").strip()

    async def append(self, ref: str, old: str, path: str, content: bytes, message: str, at_s: int) -> str:
        """
        Add one commit, which holds one file, to the chain under `ref`, if that still is at `old` ("" = not there yet).

        Returns:
            The new commit's id, or "" when the ref has moved and nothing was changed.

        Raises:
            GitError: Whether the ref moved is unknown, unless it is a `LeftoverLockError`.
        """
        tree = await self.write_file_tree(path, content)
        author = Author("Transition Journal", "journal@localhost", at_s)
        commit = await self.write_commit(tree, (old,) if old else (), message, author)
        try:
            await self.transact((RefUpdate(ref, commit, old or NOTHING),), message.partition("\n")[0])
        except RefMovedError:
            return ""
        return commit

    async def create(self) -> None:
        """Make an empty bare repository here; one that exists is left as it is."""
        await self.ask("init", "--quiet", "--bare", "--template=")

    async def remote_refs(self, remote: str, *wanted: str) -> tuple[str, ...]:
        """The object ids of refs over there, in order, "" for one that does not exist; nothing is fetched."""
        listed = (await self.ask("ls-remote", "--quiet", "--refs", "--", remote, *wanted)).text.splitlines()
        found = {name: sha for sha, _, name in (line.partition("\t") for line in listed)}
        return tuple(found.get(ref, "") for ref in wanted)

    async def fetch(self, remote: str, *refspecs: str) -> None:
        """Fetch, and forget what is gone; no tags, no FETCH_HEAD. A failure is a `GitError`, never stale data."""
        options = ("--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        await self.ask("fetch", *options, "--", remote, *refspecs)


def ref_part(text: str) -> str:
    """
    Make one component of a ref name from any text, injectively: no slash, no dot, nothing that git refuses (R100).

    Texts that come out too long for a file name keep their beginning and get a digest instead of their end.
    """
    escaped = quote(text, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(escaped) <= 180:
        return escaped
    return f"{escaped[:100]}+{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _line(update: RefUpdate) -> str:
    if not update.new:
        return f"verify {update.ref}\0{update.old}"
    return f"update {update.ref}\0{update.new}\0{update.old}"
