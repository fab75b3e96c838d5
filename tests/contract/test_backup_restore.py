"""Backup and restore of real files: complete, as one set, and never with an epoch that was handed out before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integrations.deploy.markers import Initiated, initiated_path, prepare_folder, write
from integrations.deploy.traces import MarkerTraces
from integrations.git.commands import GitError
from integrations.git.repository import Repository
from integrations.git.traces import GitTraces
from journal.clock import SystemClock, SystemIds, this_process
from journal.errors import DamagedError, InvalidInputError, NotWriterError, StoreUnavailableError
from journal.events import Observed
from journal.log import anchor, poison
from journal.log.backup import back_up
from journal.log.offline import Standing, open_evidence, standing
from journal.log.sqlite import SqliteLog
from journal.ownership import Locks
from journal.ports import Anchor
from journal.results import Advanced, Parked
from journal.words import Fact, Kind
from projections import all_views
from recovery.restore import UNKNOWN_EPOCHS, Restored, Traces, read_copy, restore
from recovery.sealer import Sealer, write_down
from recovery.verify import Head, verify, verify_task
from tests.acting import Desk, desk, three_stages
from tests.builders import FileStep
from tests.contract.test_cli_writes import service
from tests.lived import ROOT, lived


async def open_log(path: Path) -> SqliteLog:
    return await SqliteLog.open(
        path, write=True, clock=SystemClock(), new_id=SystemIds().instance, projections=all_views()
    )


async def put_back(db: Path, source: Path, *traces: Traces) -> Restored:
    me = this_process(SystemIds().instance())
    return await restore(db, source, me=me, clock=SystemClock(), open_log=open_log, traces=traces)


async def moved(at: Desk, task: str) -> None:
    """One more term, which ends in the next stage."""
    assert isinstance(await at.journal.advance(task), Advanced)


def intact(path: Path) -> bool:
    with open_evidence(path) as db:
        return verify(db, projections=all_views(), deep=True).intact


def beside(path: Path) -> set[str]:
    return {p.name for p in path.parent.iterdir() if p.name.startswith(path.name) and p.name != path.name}


async def epochs(at: Desk, task: str) -> list[int]:
    return [e.draft.epoch for e in await at.events(task, Kind.ACQUIRED)]


# -- backup ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R87", "S4")
async def test_a_backup_beside_the_writer_is_one_whole_file_and_drops_none_of_its_locks(tmp_path: Path) -> None:
    dest = tmp_path / "backup.db"
    async with desk(tmp_path) as at:
        for n in range(1, 21):
            await at.open(f"T-{n}")
        await moved(at, "T-1")
        inodes = {str((tmp_path / name).stat().st_ino) for name in ("j.db", "j.db-shm")}

        def held() -> list[str]:
            return sorted(line.split(": ", 1)[1] for line in _locks() if line.split()[5].split(":")[-1] in inodes)

        before = held()
        head = back_up(tmp_path / "j.db", dest)
        assert held() == before and before
        assert (head.position, head.hash) == await at.journal.log.head()
        await at.open("T-99")  # and it goes on writing
    assert intact(dest) and beside(dest) == set() and standing(dest) is Standing.AT_REST
    assert dest.stat().st_mode & 0o077 == 0


def _locks() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


@pytest.mark.proves("R87", "A5")
def test_a_backup_after_kill_9_holds_what_only_the_wal_held_and_changes_nothing(tmp_path: Path) -> None:
    path = lived(tmp_path / "j.db", kill=True)
    wal = path.with_name("j.db-wal")
    before = (path.read_bytes(), wal.read_bytes())
    head = back_up(path, tmp_path / "backup.db")
    with open_evidence(path) as db:
        assert head.position == db.execute("SELECT max(position) FROM journal_events").fetchone()[0]
    assert (path.read_bytes(), wal.read_bytes()) == before and intact(tmp_path / "backup.db")


@pytest.mark.proves("R87")
def test_a_backup_replaces_nothing_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    path = lived(tmp_path / "j.db")
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for dest in (taken, tmp_path):
        with pytest.raises(InvalidInputError, match="there already"):
            back_up(path, dest)
    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        back_up(path, tmp_path / "missing" / "backup.db")
    text = tmp_path / "text.db"
    text.write_text("no database\n" * 100)
    with pytest.raises(DamagedError):
        back_up(text, tmp_path / "backup.db")
    assert taken.read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} == {"j.db", "j.db.locks", "taken", "text.db"}


# -- restore ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("F1", "I26", "V8", "R93")
async def test_after_a_restore_no_epoch_is_handed_out_that_ever_was(tmp_path: Path) -> None:
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    async with desk(tmp_path, three_stages("auto")) as at:
        for task in ("T-1", "T-2"):
            await at.open(task)
        back_up(db, backup)
        for n in range(5):  # what the backup does not know
            await at.journal.reopen("T-1", stage="work", reason=f"again {n}")
            await moved(at, "T-1")
        used = await epochs(at, "T-1")
        head, _ = await at.journal.log.head()
    done = await put_back(db, backup)
    assert done.floor == max(used) and done.lost == head - done.head.position and not done.unread
    async with desk(tmp_path, three_stages("auto")) as at:
        await moved(at, "T-1")
        await at.open("T-3")  # a task that was never there before begins above it too
        await moved(at, "T-3")
        assert min(await epochs(at, "T-1")) > max(used) and min(await epochs(at, "T-3")) > max(used)
        assert (await at.journal.log.events(after=done.head.position, limit=1))[0].kind is Kind.INCARNATION_STARTED
        # The floor stays when the process is another one, a head changes and a generation is opened anew.
        await at.journal.reopen("T-2", stage="work", reason="anew")
        await at.journal.change_head("T-2", head="b" * 40, actor="operator")
        assert min(await epochs(at, "T-2")) > max(used)
    second = await put_back(db, backup)
    assert second.floor > done.floor
    assert intact(db)


@pytest.mark.proves("I4", "A3")
async def test_a_task_that_was_owned_before_a_restore_still_verifies_by_itself(tmp_path: Path) -> None:
    """A floor binds what comes after it: `inspect` once called every older task broken."""
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    async with desk(tmp_path, three_stages("auto")) as at:
        await at.open("T-1")
        await moved(at, "T-1")
        back_up(db, backup)
    await put_back(db, backup)
    with open_evidence(db) as there:
        assert verify_task(there, "T-1").violations == []


@pytest.mark.proves("V8", "X2", "I22")
@pytest.mark.parametrize("by_hand", [False, True])
async def test_an_effect_that_the_backup_does_not_know_stops_its_task_and_no_other(
    tmp_path: Path, by_hand: bool
) -> None:
    """Restored, or copied over the file: in both cases the world knows better, and nothing is done a second time."""
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    async with desk(tmp_path, three_stages("auto")) as at:
        for task in ("T-1", "T-2"):
            await at.open(task, stage="ship")
        back_up(db, backup)
        await moved(at, "T-1")
    if by_hand:
        shutil.copyfile(backup, db)
    else:
        await put_back(db, backup)
    async with desk(tmp_path, three_stages("auto")) as at:
        answer = await at.journal.advance("T-1")
        assert isinstance(answer, Parked) and "the journal has no intent for it" in answer.reason
        observed = (await at.events("T-1", Kind.OBSERVED))[-1].draft.body
        assert isinstance(observed, Observed) and (observed.row, observed.fact) == ("fresh", Fact.OURS)
        assert isinstance(await at.journal.advance("T-2"), Advanced)
        assert isinstance(at.step, FileStep) and len(at.step.calls("T-1/1/merge_pr")) == 1
        # A person who has looked says so, and the task goes on without a second effect.
        await at.journal.settle("T-1", applied=True, evidence="it is in main", reason="restored")
        assert isinstance(await at.journal.advance("T-1"), Advanced)
        assert len(at.step.calls("T-1/1/merge_pr")) == 1
    assert intact(db)


@pytest.mark.proves("R92")
async def test_database_and_side_files_change_as_one_set_and_the_old_one_is_kept_whole(tmp_path: Path) -> None:
    db = lived(tmp_path / "j.db")
    back_up(db, tmp_path / "backup.db")
    log = await open_log(db)
    await log.close()
    lived(tmp_path / "other.db", kill=True)
    for suffix in ("", "-wal", "-shm"):  # a set whose newest events lie in its WAL
        shutil.copyfile(tmp_path / f"other.db{suffix}", tmp_path / f"j.db{suffix}")
    shutil.rmtree(tmp_path / "other.db.locks")
    other = read_copy(tmp_path / "other.db")
    with pytest.raises(InvalidInputError, match="move that file away first"):
        await put_back(db, tmp_path / "backup.db")
    back_up(tmp_path / "other.db", tmp_path / "second.db")
    poison.put(db, "a disk error")
    done = await put_back(db, tmp_path / "second.db")
    assert done.kept is not None and read_copy(done.kept) == other  # with its WAL
    assert beside(db) == {"j.db.anchor", "j.db.locks", done.kept.name, f"{done.kept.name}-wal"}
    assert intact(db) and not poison.reason(db)


@pytest.mark.proves("O4", "R92")
async def test_nothing_is_restored_under_a_service_or_a_child_that_outlived_it(tmp_path: Path) -> None:
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    async with desk(tmp_path) as at:
        await at.open("T-1")
        back_up(db, backup)
        with pytest.raises(NotWriterError):
            await put_back(db, backup)
    child = Locks(db, this_process("x")).take_task("T-1", "worker", "run-1")
    assert child is not None
    assert child.fd > 0  # as a step asks for it to give it to its child
    with pytest.raises(NotWriterError, match="holds task t-1"):
        await put_back(db, backup)
    child.release()
    assert (await put_back(db, backup)).floor == 0


@pytest.mark.proves("A1", "V8")
async def test_a_backup_that_does_not_verify_is_refused_and_the_journal_stays(tmp_path: Path) -> None:
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    lived(db)
    back_up(db, backup)
    with sqlite3.connect(backup) as edited:
        edited.execute("DROP TRIGGER journal_events_no_update")
        edited.execute("UPDATE journal_events SET actor = 'mallory' WHERE position = 9")
    edited.close()
    before = db.read_bytes()
    with pytest.raises(DamagedError, match="does not verify"):
        await put_back(db, backup)
    with pytest.raises(InvalidInputError, match="is the journal itself"):
        await put_back(db, db)
    assert db.read_bytes() == before and beside(db) == {"j.db.locks"}


@pytest.mark.proves("F1", "V8")
async def test_what_cannot_be_asked_for_its_epochs_raises_the_floor_beyond_them(tmp_path: Path) -> None:
    db, backup = tmp_path / "j.db", tmp_path / "backup.db"
    async with desk(tmp_path) as at:
        await at.open("T-1")
        back_up(db, backup)
    db.write_bytes(b"ruined" * 1000)
    done = await put_back(db, backup)
    assert done.floor == UNKNOWN_EPOCHS and done.unread == ("the journal that is replaced",) and done.lost is None
    gone = GitTraces("repository gone", Repository(tmp_path / "gone.git"))
    with pytest.raises(GitError):
        await gone.greatest("x")
    again = await put_back(db, backup, gone)
    assert again.unread == ("repository gone",) and again.floor == 2 * UNKNOWN_EPOCHS


@pytest.mark.proves("F1", "V8", "A4")
async def test_epochs_are_read_from_tags_trailers_and_deploy_markers_of_this_journal(tmp_path: Path) -> None:
    repository = _repository(tmp_path / "widgets.git")
    _commit(repository, "refs/heads/main", "Merge\n\nTransition: T-1/1/merge_pr\nTransition-Fence: 41.1\n"
            f"Transition-Journal: mine@7:{'a' * 64}\n")  # fmt: skip
    _commit(repository, "refs/heads/other", "Merge\n\nTransition: T-1/1/merge_pr\nTransition-Fence: 900.1\n"
            f"Transition-Journal: theirs@7:{'a' * 64}\n")  # fmt: skip
    traces = GitTraces("repository widgets", Repository(repository))
    assert await traces.greatest("mine") == 41
    tag = "Transition: T-2/1/merge_pr\nTransition-Fence: 57.2\nTransition-Journal: mine@9:" + "b" * 64
    _git(repository, "tag", "-a", "-m", tag, "tmp", "refs/heads/main")
    _git(repository, "update-ref", "refs/journal/T-2/1/merge_pr", _git(repository, "rev-parse", "tmp"))
    assert await traces.greatest("mine") == 57 and await traces.greatest("nobody") == 0

    folder = tmp_path / "deploys"
    prepare_folder(folder)
    for key, epoch, journal in (("T-1/1/deploy_init", 63, "mine"), ("T-2/1/deploy_init", 99, "theirs")):
        marker = Initiated(key, epoch, 1, journal, "", "c" * 40, "", "production", epoch, 0)
        write(initiated_path(folder, key), marker)
    assert await MarkerTraces(folder).greatest("mine") == 63
    (folder / ("0" * 64 + ".initiated.json")).write_text("{torn")
    with pytest.raises(StoreUnavailableError):
        await MarkerTraces(folder).greatest("mine")


def _git(repository: Path, *argv: str, stdin: str = "") -> str:
    who = {
        f"GIT_{role}_{what}": f"{role}@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    argv = ("git", f"--git-dir={repository}", *argv)
    done = subprocess.run(argv, input=stdin, env=os.environ | who, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _repository(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return path


def _commit(repository: Path, ref: str, message: str) -> None:
    tree = _git(repository, "mktree")
    _git(repository, "update-ref", ref, _git(repository, "commit-tree", tree, stdin=message))


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.contract.test_backup_restore import put_back
left = int(sys.argv[3])
begun = False
def hook(event, args):
    global left, begun
    if event not in ("os.rename", "os.remove"):
        return
    begun = begun or str(args[0]).endswith(".staging") and event == "os.rename"
    if begun:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
asyncio.run(put_back(Path(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.mark.proves("R92", "F1")
async def test_killed_between_any_two_steps_of_the_change_a_restore_can_be_run_again(tmp_path: Path) -> None:
    """The journal is the old one, or the new one, or refuses to be written until the restore is run once more."""
    first, backup = tmp_path / "first.db", tmp_path / "backup.db"
    lived(first, kill=True)
    back_up(first, backup)
    used = read_copy(first).greatest
    seen = set()
    for left in range(40):
        folder = tmp_path / str(left)
        folder.mkdir()
        db = folder / "j.db"
        for suffix in ("", "-wal", "-shm"):
            shutil.copyfile(first.with_name(first.name + suffix), db.with_name(db.name + suffix))
        argv = [sys.executable, "-c", _KILLED, str(db), str(backup), str(left)]
        code = subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=60, check=False).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        try:
            log = await open_log(db)
        except StoreUnavailableError as refused:
            seen.add("refuses" if "cut short" in str(refused) else str(refused))
        else:
            began = await log.query("SELECT count(*) FROM journal_events WHERE kind = 'incarnation_started'")
            seen.add("new" if began[0][0] else "old")
            await log.close()
        await put_back(db, backup)
        assert intact(db) and read_copy(db).greatest >= used
    else:
        pytest.fail("it never came to its end")
    assert seen == {"old", "refuses", "new"} and left >= 5


@pytest.mark.proves("F1", "R87", "O4")
def test_on_the_command_line_a_backup_is_taken_beside_a_service_and_restored_once_it_has_ended(tmp_path: Path) -> None:
    def journal(*argv: str, code: int = 0) -> Any:
        command = [sys.executable, "-m", "integrations.cli", "--config", str(config), *argv, "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    config, dest = tmp_path / "journal.toml", tmp_path / "backup.db"
    subprocess.run([sys.executable, "-m", "integrations.cli", "init", str(tmp_path)], cwd=ROOT, check=True)
    with service(config):
        journal("open", "T-1", "--repo", "acme/widgets", "--branch", "feature/1")
        taken = journal("backup", str(dest), "--verify")
        assert taken["verified"] and {p.name for p in tmp_path.glob("*rehearsal*")} == set()
        assert "another process drives" in journal("restore", str(dest), code=3)
        journal("open", "T-2", "--repo", "acme/widgets", "--branch", "feature/2")
    done = journal("restore", str(dest))
    assert done["head"] == taken["head"] and done["lost"] == 1 and Path(done["kept"]).exists()
    assert journal("verify")["anchored"] is False  # nobody gave a head; the one beside the journal was held against it
    with service(config):
        assert [row["task"] for row in journal("queue")["tasks"]] == ["T-1"]


# -- anchors ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("A2", "V8")
async def test_a_file_that_ends_before_the_head_that_was_written_down_is_not_written(tmp_path: Path) -> None:
    db, copy = tmp_path / "j.db", tmp_path / "copy.db"
    async with desk(tmp_path, three_stages("auto")) as at:
        await at.open("T-1")
        back_up(db, copy)
        await moved(at, "T-1")
        head = await write_down(at.journal)
        assert anchor.read(db) == head
        await at.open("T-2")
    for put in (lambda: shutil.copyfile(copy, db), db.unlink):
        put()
        with pytest.raises(DamagedError, match=rf"does not reach position {head.position}"):
            await open_log(db)
    shutil.copyfile(copy, db)
    with open_evidence(db) as opened:
        assert not verify(opened, head=Head(head.position, head.hash)).intact
    anchor.put(db, Anchor(2, "0" * 64))
    with pytest.raises(DamagedError, match="tells otherwise at position 2"):
        await open_log(db)
    await put_back(db, copy)
    async with desk(tmp_path, three_stages("auto")) as at:
        await moved(at, "T-1")


@pytest.mark.proves("A2")
async def test_the_head_is_sealed_once_for_what_was_written_and_not_again_for_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.open("T-1")
        sealer = Sealer(at.journal)
        head = await sealer.seal()
        assert head is not None and await sealer.seal() is None and await sealer.seal() is None
        await at.open("T-2")
        assert await sealer.seal() is not None
        rows = await at.journal.log.query("SELECT count(*) FROM journal_events WHERE kind = 'sealed'")
        assert rows[0][0] == 2
    assert intact(tmp_path / "j.db")


def test_an_anchor_that_names_no_head_is_no_anchor(tmp_path: Path) -> None:
    for text in ("", "0:" + "a" * 64, "7:short", "7:" + "A" * 64, "seven"):
        anchor.anchor_path(tmp_path / "j.db").write_text(text)
        with pytest.raises(StoreUnavailableError, match="names no head"):
            anchor.read(tmp_path / "j.db")
