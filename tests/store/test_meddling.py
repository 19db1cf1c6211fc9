"""Other programs change, rename or delete the files of a run while it trains; file systems lack what others have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evo.errors import DataError, LockedError, ResourceError
from evo.files import durable
from evo.store import metrics as metrics_module
from evo.store import store as store_module
from evo.store.checkpoints import Published
from evo.store.store import Store
from tests.helpers.sampling import sampled
from tests.store.committing import commit, state, straight
from tests.store.test_store import ROOT, assert_holds, finish, made


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return straight(tmp_path_factory.mktemp("straight") / "run", 30)


def halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def doubled(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes())


def scribbled(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(b"x")


def restored(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def test_a_file_system_that_reads_less_than_was_asked_for_has_changed_nothing(
    tmp_path: Path, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, start: pread(file, min(size, 50), start))
    store = made(tmp_path / "run", 12, flush_each=True)
    assert store.lines[3] == Store.read(tmp_path / "run").lines[3]
    store.close()
    assert finish(tmp_path / "run", 30) == hashes[30]


@pytest.mark.parametrize("change", [halved, doubled, scribbled, restored, Path.unlink])
def test_a_manifest_that_another_program_changed_is_not_written_to(
    tmp_path: Path, hashes: list[str], change: Callable[[Path], None]
) -> None:
    """It was padded with NULs to the length that it should have had, and the run said that it was done."""
    store, path = made(tmp_path / "run", 12, flush_each=True), tmp_path / "run" / "manifest.jsonl"
    change(path)
    changed = path.read_bytes() if path.exists() else None
    commit(store, 12)
    with pytest.raises(ResourceError, match=f"{path}: another program changed it while the run trained: it"):
        store.flush()
    with pytest.raises(ResourceError, match="another program"):
        commit(store, 13)
    store.close()
    if changed is None:
        with pytest.raises(DataError):
            Store.open(tmp_path / "run")
    else:
        assert path.read_bytes() == changed
        assert finish(tmp_path / "run", 30) == hashes[30]
        assert b"\0" not in path.read_bytes()


@pytest.mark.parametrize("change", [halved, scribbled, Path.unlink])
def test_a_manifest_that_was_changed_after_the_last_generation_is_noticed_at_the_end(
    tmp_path: Path, hashes: list[str], change: Callable[[Path], None]
) -> None:
    """It was cut while the champion was tested, and the run said that it was done."""
    store, path = made(tmp_path / "run", 12, flush_each=True), tmp_path / "run" / "manifest.jsonl"
    change(path)
    with pytest.raises(ResourceError, match="another program changed it while the run trained: it"):
        store.close()
    if path.exists():
        assert finish(tmp_path / "run", 30) == hashes[30]


def test_a_commit_that_waits_for_a_flush_that_fails_fails_too(tmp_path: Path, hashes: list[str]) -> None:
    """It counted on commits that the flush in the other thread had given up, and ended in an IndexError."""
    store, found = made(tmp_path / "run", 12, flush_each=True), list[BaseException]()
    commit(store, 12)

    def commit_next() -> None:
        try:
            commit(store, 13)
        except BaseException as error:
            found.append(error)

    with store._flushing:
        thread = threading.Thread(target=commit_next)
        thread.start()
        thread.join(0.5)  # it waits here
        halved(tmp_path / "run" / "manifest.jsonl")
        with pytest.raises(ResourceError):
            store.flush()
    thread.join()
    assert "another program changed it" in str(found[0])
    assert store.next_generation == 12
    store.close()
    assert finish(tmp_path / "run", 30) == hashes[30]


def test_a_deleted_lock_leads_to_no_second_master(tmp_path: Path, hashes: list[str]) -> None:
    store = made(tmp_path / "run", 3, flush_each=True)
    (tmp_path / "run" / "lock").unlink()
    with pytest.raises(LockedError, match="is in use by"):
        Store.open(tmp_path / "run")
    for generation in range(3, 6):
        commit(store, generation)
        store.flush()
    with pytest.raises(LockedError, match=f"process {os.getpid()}"):  # the lock file is there again
        Store.open(tmp_path / "run")
    store.close()
    assert finish(tmp_path / "run", 30) == hashes[30]


def test_a_master_whose_lock_and_manifest_were_replaced_leaves_the_directory_to_the_other_one(
    tmp_path: Path, hashes: list[str]
) -> None:
    first = made(tmp_path / "run", 3, flush_each=True)
    (tmp_path / "run" / "lock").unlink()
    restored(tmp_path / "run" / "manifest.jsonl")
    with Store.open(tmp_path / "run") as second:
        commit(first, 3)
        with pytest.raises(LockedError, match="is in use by"):
            first.flush()
        first.close()
        commit(second, 3)
    assert finish(tmp_path / "run", 30) == hashes[30]


def test_a_copy_by_hard_links_and_the_run_that_it_is_of_go_on_apart(tmp_path: Path, hashes: list[str]) -> None:
    """What one of them wrote stood in the other one too, whose checkpoints it then lacked."""
    made(tmp_path / "run", 12, flush_each=True).close()
    shutil.copytree(tmp_path / "run", tmp_path / "copy", copy_function=os.link)
    assert finish(tmp_path / "run", 20) == hashes[20]
    with Store.open(tmp_path / "copy") as copy:
        assert (copy.next_generation, copy.notices, len(copy.metrics())) == (12, [], 12)
    with Store.open(tmp_path / "run") as store:
        assert (store.next_generation, store.notices, len(store.metrics())) == (20, [], 20)


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_file_of_a_run_that_is_another_name_of_a_file_elsewhere_leaves_that_as_it_is(
    tmp_path: Path, hashes: list[str], name: str
) -> None:
    """Whoever unpacks a run that was sent may get such a link with it."""
    made(tmp_path / "run", 3).close()
    (tmp_path / "own").write_text("precious")
    (tmp_path / "run" / name).unlink()
    os.link(tmp_path / "own", tmp_path / "run" / name)
    assert finish(tmp_path / "run", 5) == hashes[5]
    assert (tmp_path / "own").read_text() == "precious"


def test_a_temporary_file_that_is_another_name_of_a_file_elsewhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("precious")
    os.link(tmp_path / "own", tmp_path / "report.html.tmp")
    durable.replace_file(tmp_path / "report.html", b"page")
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["precious", "page"]


def test_a_run_whose_directory_is_renamed_goes_on_there(tmp_path: Path, hashes: list[str]) -> None:
    with made(tmp_path / "run", 3) as store:
        (tmp_path / "folder").mkdir()
        (tmp_path / "run").rename(tmp_path / "folder" / "other")
        for generation in range(3, 9):
            name = store.publish(state(generation)["weights"])  # type: ignore[arg-type]
            assert (tmp_path / "run" / name).exists()  # where workers look for it, which know the first place
            commit(store, generation)
        assert store.directory == tmp_path / "folder" / "other"
    assert not (tmp_path / "run").exists()
    with Store.open(tmp_path / "folder" / "other") as store:
        assert_holds(store, hashes)
        assert (store.next_generation, len(store.metrics())) == (9, 9)


@pytest.mark.parametrize("writer", ["publish", "_append", "write_generations", "write_champion"])
def test_a_run_whose_directory_is_renamed_while_it_writes_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashes: list[str], writer: str
) -> None:
    """A rename within the milliseconds of any other write but of generations ended the run, or lost its metrics."""
    place = {"publish": Published, "_append": metrics_module}.get(writer, store_module)
    write, left = getattr(place, writer), [tmp_path / "run"]

    def renamed(*arguments: object) -> object:
        while left:
            left.pop().rename(tmp_path / "other")
        return write(*arguments)

    with made(tmp_path / "run", 3) as store:
        monkeypatch.setattr(place, writer, renamed)
        name = store.publish(state(3)["weights"])  # type: ignore[arg-type]
        assert (tmp_path / "run" / name).exists()  # which is absolute where the directory has moved
        commit(store, 3)
        store.write_champion(np.zeros(2, np.float32), [("0_dense_kernel", (2, 1))], {})
        store.flush()
        assert store.directory == tmp_path / "other"
        assert (len(store.metrics()), store.notices) == (4, [])
    assert (tmp_path / "other" / "champion.h5").exists()
    assert finish(tmp_path / "other", 30) == hashes[30]


def test_a_run_whose_directory_is_removed_ends_with_a_line(tmp_path: Path) -> None:
    store = made(tmp_path / "run", 3)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ResourceError, match="the run directory was removed while the run trained"):
        commit(store, 3)
    (tmp_path / "run").mkdir()  # another one, which is not ours
    with pytest.raises(ResourceError, match="removed"):
        store.close()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_forked_process_neither_writes_nor_unlocks(tmp_path: Path, hashes: list[str]) -> None:
    store = made(tmp_path / "run", 3)
    before = (tmp_path / "run" / "manifest.jsonl").read_bytes()
    if (child := os.fork()) == 0:
        try:
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "run" / "manifest.jsonl").read_bytes() == before
    with pytest.raises(LockedError):
        Store.open(tmp_path / "run")
    commit(store, 3)
    store.close()
    assert finish(tmp_path / "run", 30) == hashes[30]


def test_what_no_reader_would_take_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path / "run", 3, flush_each=True) as store:
        before = (tmp_path / "run" / "manifest.jsonl").read_bytes()
        monkeypatch.setattr(durable, "LONGEST", 500)
        commit(store, 3)
        with pytest.raises(ResourceError, match="could not be read back"):
            store.flush()
        assert store.next_generation == 3
    assert (tmp_path / "run" / "manifest.jsonl").read_bytes() == before


def test_a_damaged_record_is_named_once_by_a_resume_and_the_run_goes_on(tmp_path: Path, hashes: list[str]) -> None:
    made(tmp_path / "run", 6, flush_each=True).close()
    for generation in (1, 2):
        path = tmp_path / "run" / "records" / f"gen-{generation:06}-{generation:06}.h5"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with Store.open(tmp_path / "run") as store:
        assert len(store.notices) == 1
        assert "records/gen-000001-000001.h5 and 1 more record files are damaged" in store.notices[0]
    assert finish(tmp_path / "run", 30) == hashes[30]


LACKING = {
    "flock": "inject=flock:error=ENOSYS",
    "no locks": "inject=flock:error=ENOLCK",
    "fsync of a directory": "inject=fsync:error=EINVAL",
    "chmod": "inject=chmod,fchmodat,fchmod:error=EPERM",
}
PROGRAM = """\
import os, sys
real = os.fsync
def fsync(descriptor):  # fails for directories alone, as it does on some file systems
    import stat
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(22, "Invalid argument")
    real(descriptor)
if sys.argv.pop(1) == "fsync of a directory":
    os.fsync = fsync
from tests.store import committing
sys.exit(committing.main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("what", sampled(LACKING))
def test_a_run_takes_place_on_a_file_system_that_lacks_something(tmp_path: Path, what: str, hashes: list[str]) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    traced = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", LACKING[what]]
    command = [sys.executable, "-c", PROGRAM, what, str(tmp_path / "run"), "30", "0", "8", "quiet"]
    for _ in range(2):  # a new run, and a resume
        done = subprocess.run(
            command if what.startswith("fsync") else [*traced, *command],
            cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = done.stderr.splitlines()
        assert (len(said) == 1 and "mount with -o flock" in said[0]) if "lock" in what else not said, said
    with Store.open(tmp_path / "run") as store:
        assert_holds(store, hashes)
        assert store.next_generation == 30
