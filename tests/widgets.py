"""Builders around the demo's scenery: calls about its tasks, and the things people do to a repository by hand."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from integrations.demo.scenery import BASE, REPO, Feature, Scenery, build_scenery
from integrations.git.repository import Repositories, Repository
from journal.ports import Anchor, Call, Subject

JOURNAL = "0" * 31 + "1"
_BY_HAND = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Somebody",
    "GIT_AUTHOR_EMAIL": "somebody@localhost",
    "GIT_COMMITTER_NAME": "Somebody",
    "GIT_COMMITTER_EMAIL": "somebody@localhost",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
}


@dataclass(slots=True)
class FreeTerm:
    """A term without a lock: adapters run their children without one."""

    fd: int = -1
    groups: list[int] = field(default_factory=list)

    def child_started(self, group: int) -> None:
        self.groups.append(group)

    def child_ended(self, group: int) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class Widgets:
    """A scenery, and a clone with a work tree for what people do by hand."""

    scenery: Scenery
    clone: Path

    @property
    def repositories(self) -> Repositories:
        return Repositories(self.scenery.paths)

    @property
    def repository(self) -> Repository:
        return self.repositories(REPO)

    def feature(self, n: int = 1) -> Feature:
        return self.scenery.features[n - 1]

    def git(self, *argv: str) -> str:
        """Ask the bare repository, past our code."""
        return run_git(self.scenery.repository, *argv)

    def main(self) -> str:
        return self.git("rev-parse", BASE)

    def landed(self, n: int = 1) -> int:
        """How many commits of main say that they are the merge of task n: counted in the world."""
        said = self.git("log", "--format=%B", BASE).splitlines()
        return said.count(f"Transition: WID-{n}/1/merge_pr")

    def by_hand(self, *commands: str) -> str:
        """Run git commands in a clone, on a fresh main, and push main; says the new main."""
        if not self.clone.exists():
            run_git(None, "clone", "--quiet", str(self.scenery.repository), str(self.clone))
        self._in_clone("fetch", "--quiet", "origin")
        self._in_clone("checkout", "--quiet", "-B", BASE, f"origin/{BASE}")
        for command in commands:
            self._in_clone(*command.split(" "))
        self._in_clone("push", "--quiet", "--force", "origin", BASE)
        return self.main()

    def edit(self, name: str, content: str) -> str:
        """Commit a file to main by hand."""
        self.by_hand()
        (self.clone / name).write_text(content)
        self._in_clone("add", name)
        self._in_clone("commit", "--quiet", "-m", f"edit {name}")
        self._in_clone("push", "--quiet", "origin", BASE)
        return self.main()

    def branch_file(self, n: int, name: str, content: str) -> Subject:
        """Add a commit with one changed file to a feature branch; gives the subject with the new head."""
        self.by_hand()
        branch = self.feature(n).branch
        self._in_clone("checkout", "--quiet", "-B", branch, f"origin/{branch}")
        (self.clone / name).write_text(content)
        self._in_clone("add", name)
        self._in_clone("commit", "--quiet", "-m", f"change {name}")
        self._in_clone("push", "--quiet", "origin", branch)
        return Subject(f"WID-{n}", REPO, branch, self.git("rev-parse", f"refs/heads/{branch}"))

    def _in_clone(self, *argv: str) -> None:
        run_git(self.clone / ".git", f"--work-tree={self.clone}", *argv, cwd=self.clone)


def build_widgets(folder: Path, tasks: int = 1) -> Widgets:
    """Build the scenery in `folder`."""
    return Widgets(build_scenery(folder, tasks), folder / "clone")


def call_about(widgets: Widgets, n: int = 1, step: str = "merge_pr", *, epoch: int = 1, attempt: int = 1) -> Call:
    """An order about task n, citing a made-up intent."""
    feature = widgets.feature(n)
    subject = Subject(f"WID-{n}", REPO, feature.branch, feature.head)
    return Call(JOURNAL, subject, 1, step, epoch, attempt, 60.0, FreeTerm(), Anchor(7, "ab" * 32))


def run_git(repository: Path | None, *argv: str, cwd: Path | None = None) -> str:
    """Run git as a person would; its output without the line break at the end."""
    where = [f"--git-dir={repository}"] if repository else []
    command = ["git", *where, "-c", "protocol.file.allow=always", *argv]
    done = subprocess.run(command, capture_output=True, env=_BY_HAND, cwd=cwd, check=False)
    if done.returncode:
        raise AssertionError(f"{command}: {done.stderr.decode()}")
    return done.stdout.decode().rstrip("\n")
