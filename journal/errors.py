"""
The tree of exceptions. An expected refusal is a result, not an exception (`journal.results`).

JournalError
├── CallerError              the caller can mend it: exit 2, HTTP 4xx
│   ├── InvalidInputError    a name or value at the edge
│   ├── UnknownTaskError     exit 1, HTTP 404
│   ├── TaskExistsError      HTTP 409
│   ├── PipelineError        a definition that cannot work
│   └── InadmissibleError    a unit of events that breaks the protocol: a bug in the caller
└── StoreError               the world is broken: exit 4, HTTP 503
    ├── StoreUnavailableError  cannot be opened, locked or read
    ├── NotWriterError       another process holds the writer lock
    ├── PoisonedError        an I/O error was seen: verify, then `journal doctor --unpoison`
    ├── NewerSchemaError     written by a newer version: reading only
    ├── CommitUnknownError   a commit failed; whether it is durable is not known
    └── DamagedError         the file is not what it should be
        └── UnknownEventError  an event of a kind or schema that this program does not know
"""

from __future__ import annotations


class JournalError(Exception):
    """Everything this project raises."""


class CallerError(JournalError):
    """The caller can mend it."""


class InvalidInputError(CallerError):
    """A name or value that is refused at the edge, before anything is appended."""

    def __init__(self, *, what: str, why: str) -> None:
        self.what, self.why = what, why
        super().__init__(f"{what}: {why}")


class UnknownTaskError(CallerError):
    """No event names this task, or none did at the point that was asked for; `opened`: the position that does."""

    def __init__(self, *, task: str, opened: int = 0) -> None:
        self.task, self.opened = task, opened
        never = "is unknown; `journal queue` lists the open ones, `journal open` opens one"
        super().__init__(f"task {task} " + (f"was opened at position {opened} and not before" if opened else never))


class TaskExistsError(CallerError):
    """The id is taken; ids are unique ignoring case."""

    def __init__(self, *, task: str, existing: str) -> None:
        self.task, self.existing = task, existing
        same = "is open already" if task == existing else f"differs from the existing {existing} only in case"
        super().__init__(f"task {task} {same}; choose another id")


class PipelineError(CallerError):
    """A pipeline definition that cannot work; says where and how to mend it."""

    def __init__(self, *, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(f"{where}: {why}")


class InadmissibleError(CallerError):
    """A unit of events that no protocol rule allows: a bug in whoever wrote it, never a race."""

    def __init__(self, *, rule: str, detail: str) -> None:
        self.rule, self.detail = rule, detail
        super().__init__(f"{rule}: {detail}")


class StoreError(JournalError):
    """The store cannot be relied upon."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened, locked or read; nothing is known."""

    def __init__(self, *, path: str, why: str, remedy: str = "") -> None:
        self.path, self.why, self.remedy = path, why, remedy
        super().__init__(f"{path}: {why}" + (f"; {remedy}" if remedy else ""))


class NotWriterError(StoreError):
    """Another process holds the writer lock and drives."""

    def __init__(self, *, path: str, holder: str) -> None:
        self.path, self.holder = path, holder
        super().__init__(f"{path}: another process drives this journal ({holder}); it must end first")


class PoisonedError(StoreError):
    """The disk lied once; nothing is written until a person has looked (S6)."""

    def __init__(self, *, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(
            f"{path}: writing stopped after '{why}'; run `journal verify`, then `journal doctor --unpoison`"
        )


class NewerSchemaError(StoreError):
    """Written by a newer version: it may be read, not written (L4)."""

    def __init__(self, *, path: str, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(f"{path}: schema {found} is newer than this program's {known}; install the newer version")


class CommitUnknownError(StoreError):
    """A commit failed and the log could not tell whether it is durable: nothing may rest on it (S5)."""

    def __init__(self, *, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: a commit failed ({why}) and its outcome is unknown")


class DamagedError(StoreError):
    """The file is not an intact journal, as far as this program can tell."""

    def __init__(self, *, path: str, why: str, remedy: str = "restore a backup") -> None:
        self.path, self.why, self.remedy = path, why, remedy
        super().__init__(f"{path}: {why}; {remedy}")


class UnknownEventError(DamagedError):
    """Written by a newer version: kept as it is, and its task stands still here (L4)."""
