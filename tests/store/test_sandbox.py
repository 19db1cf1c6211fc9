"""Files that somebody else made, or made up: they give a champion or one line, and nothing outside of them is read."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from evo.errors import DataError, ResourceError
from evo.files.durable import with_checksum
from evo.store import sandbox
from evo.store.champion import encode_champion, read_champion
from evo.store.sandbox import guess_kind
from tests.helpers.sampling import sampled

ROOT = Path(__file__).parents[2]
WEIGHTS = np.random.default_rng(1).random(600, np.float32)
LAYERS = [("kernel", (6, 90)), ("bias", (60,))]
CANARY = b"what no file may bring to light!" * 100


@pytest.fixture(autouse=True)
def each_apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read every champion as a command does that reads one; those of tests of what is in it, by children of one."""
    if request.function in (
        test_a_champion_of_another_format_is_refused,
        test_a_description_that_does_not_hold_is_refused,
        test_a_file_that_holds_by_that_description_is_read,
        test_files_of_keras_are_named,
    ):
        yield
        return
    if (kept := sandbox._kept.get()) is not None:  # that of the tests before
        kept.close()
    token = sandbox._kept.set(None)
    yield
    sandbox._kept.reset(token)


def champion(path: Path) -> Path:
    path.write_bytes(encode_champion(WEIGHTS, LAYERS, {"fitness": 2.5})[0])
    return path


def refused(path: Path) -> str:
    """Return the one line that refuses a file, within seconds and without having become any larger."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(DataError) as caught:
        sandbox.read_champion(path)
    assert time.monotonic() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    return line


def test_a_champion_is_read_as_it_is_read_by_its_own_run(tmp_path: Path) -> None:
    file = champion(tmp_path / "champion.h5")
    for path in (file, tmp_path):
        ours, theirs = read_champion(path), sandbox.read_champion(path)
        assert np.array_equal(ours.weights, theirs.weights)
        assert np.array_equal(theirs.weights, WEIGHTS)
        assert ours[1:] == theirs[1:]
        assert theirs.weights.flags.writeable


def test_large_champions_are_read_within_their_limits(tmp_path: Path) -> None:
    many = np.ones(5_000_000, np.float32)
    (tmp_path / "champion.h5").write_bytes(encode_champion(many, [("kernel", (5_000_000,))], {})[0])
    assert np.array_equal(sandbox.read_champion(tmp_path).weights, many)


# What is no HDF5 file is named and not parsed


class Payload:
    """What a pickle runs when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, b"{}")
    return buffer.getvalue()


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


NO_HDF5 = {
    "keras": (archive("metadata.json", "config.json", "model.weights.h5"), "a .keras archive"),
    "pt": (archive("archive/data.pkl", "archive/byteorder"), "a .pt file of PyTorch"),
    "npz": (saved(lambda file: np.savez(file, a=WEIGHTS)), "an .npz archive"),
    "npy": (saved(lambda file: np.save(file, WEIGHTS)), "an .npy array"),
    "zip": (archive("readme"), "a zip archive"),
    "gzip": (b"\x1f\x8b\x08\0", "compressed by gzip"),
    "json": (b'{"weights": []}', "JSON"),
    "empty": (b"", "empty"),
    "zeros": (bytes(5000), "zeros"),
    "noise": (b"\xd3\x11", "something else"),
}


@pytest.mark.parametrize("kind", NO_HDF5)
def test_what_a_file_seems_to_be_is_said(tmp_path: Path, kind: str) -> None:
    data, name = NO_HDF5[kind]
    (tmp_path / "champion.h5").write_bytes(data)
    assert f"seems to be {name}" in refused(tmp_path / "champion.h5")


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_never_loaded(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(Payload(tmp_path / "canary"), protocol)
    (tmp_path / "champion.h5").write_bytes(data)
    line = refused(tmp_path / "champion.h5")
    assert protocol < 2 or "a pickle" in line
    (tmp_path / "champion.h5").write_bytes(archive("archive/data.pkl").replace(b"{}", data[:2]))
    refused(tmp_path / "champion.h5")
    assert not (tmp_path / "canary").exists()
    pickle.loads(data)
    assert (tmp_path / "canary").exists()  # so it would have been made


def test_no_prefix_of_a_zip_archive_confuses_who_names_it() -> None:
    data = archive("archive/data.pkl")
    assert all(guess_kind(data[:size]) for size in range(60))


# HDF5 files that are no champion


def described(layers: object = LAYERS, digest: str = "", **more: object) -> bytes:
    digest = digest or hashlib.sha256(WEIGHTS.tobytes()).hexdigest()
    return with_checksum({"about": {}, "format": 2, "layers": layers, "weights_sha256": digest, **more})


@pytest.mark.parametrize("more", [{"format": 1}, {"format": None}], ids=["1", "another"])
def test_a_champion_of_another_format_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    line = refused(build(tmp_path / "champion.h5", described(**more), whole))
    assert ("in format 1 by an earlier snake-evo" if more["format"] else "has format None") in line


def build(path: Path, about: bytes, make: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "w") as file:
        file["about"] = np.frombuffer(about, np.uint8)
        make(file)
    return path


def whole(file: h5py.File) -> None:
    file["kernel"], file["bias"] = WEIGHTS[:540].reshape(6, 90), WEIGHTS[540:]


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((6, 90), "<f4")
    layout[:] = h5py.VirtualSource("canary.h5", "kernel", (6, 90))
    file.create_virtual_dataset("kernel", layout)


def user_filter(file: h5py.File) -> None:
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((6, 90))
    creation.set_shuffle()
    h5py.h5d.create(file.id, b"kernel", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((6, 90)), creation)


HOSTILE: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "an external link": (
        lambda file: file.__setitem__("kernel", h5py.ExternalLink("canary.h5", "kernel")),
        "is a link",
    ),
    "a soft link": (lambda file: file.__setitem__("kernel", h5py.SoftLink("/bias")), "is a link"),
    "a loop of links": (lambda file: file.__setitem__("kernel", h5py.SoftLink("/kernel")), "is a link"),
    "external data": (
        lambda file: file.create_dataset("kernel", (6, 90), "<f4", external=[("canary.txt", 0, 2160)]),
        "another file",
    ),
    "a virtual dataset": (virtual, "one piece"),
    "a bomb of zeros": (
        lambda file: file.create_dataset("kernel", (1 << 14, 1 << 14), "<f4", chunks=(1024, 1024), compression="gzip"),
        "one piece",
    ),
    "a filter": (user_filter, "one piece"),
    "references": (
        lambda file: file.create_dataset("kernel", data=np.array([[file["bias"].ref]], h5py.ref_dtype)),
        "not an array of numbers",
    ),
    "a region": (
        lambda file: file.create_dataset("kernel", data=np.array([file["bias"].regionref[:]], h5py.regionref_dtype)),
        "not an array of numbers",
    ),
    "text of any length": (lambda file: file.create_dataset("kernel", data=["x" * 99]), "not an array of numbers"),
    "a petabyte": (lambda file: file.create_dataset("kernel", (1 << 25, 1 << 25), "<f4"), "expected <f4 (6, 90)"),
    "another shape": (lambda file: file.create_dataset("kernel", (90, 6), "<f4"), "expected <f4 (6, 90)"),
    "another type": (lambda file: file.create_dataset("kernel", (6, 90), "<f2"), "expected <f4 (6, 90)"),
    "too few bytes": (lambda file: file.create_dataset("kernel", (6, 90), "<f4"), "does not hold"),
    "a group": (lambda file: file.create_group("kernel"), "not an array"),
    "a named type": (lambda file: file.__setitem__("kernel", np.dtype("<f4")), "not an array"),
    "no such layer": (lambda file: None, "has no array 'kernel'"),
    "one layer too many": (
        lambda file: (file.create_dataset("kernel", data=WEIGHTS[:540].reshape(6, 90)), file.create_group("\x1b[2J")),
        r"unexpected entry '\x1b[2J'",
    ),
}


@pytest.mark.parametrize("what", sampled(HOSTILE, 0, 5))
def test_a_hostile_layer_is_refused_and_nothing_outside_of_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "canary.txt").write_bytes(CANARY)
    build(tmp_path / "canary.h5", b"", whole)
    make, message = HOSTILE[what]

    def with_bias(file: h5py.File) -> None:
        file["bias"] = WEIGHTS[540:]
        make(file)

    line = refused(build(tmp_path / "champion.h5", described(), with_bias))
    assert message in line
    assert "bring to light" not in line


def test_the_canary_is_there_to_be_found_by_who_follows_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "canary.txt").write_bytes(CANARY)
    path = build(tmp_path / "champion.h5", described(), HOSTILE["external data"][0])
    with h5py.File(path) as file:
        assert b"bring to light" in file["kernel"][:].tobytes()


DESCRIPTIONS = {
    "not JSON": b"x" * 200,
    "another checksum": described().replace(b"kernel", b"kernal"),
    "no layers": described([]),
    "layers that are no list": described(5),
    "a layer without a shape": described([["kernel"]]),
    "a negative side": described([["kernel", [-6, -90]], ["bias", [60]]]),
    "a side of true": described([["kernel", [True, 540]], ["bias", [60]]]),
    "a broken side": described([["kernel", [6.0, 90]], ["bias", [60]]]),
    "a side beyond counting": described([["kernel", [1 << 62, 1 << 62]], ["bias", [60]]]),
    "a thousand sides": described([["kernel", [1] * 1000], ["bias", [60]]]),
    "the same layer a thousand times": described([["kernel", [6, 90]]] * 1000),
    "the description as a layer": described([["about", [6, 90]], *LAYERS]),
    "a layer too few": described(LAYERS[:1]),
    "the digest of other weights": described(digest="00" * 32),
    "a digest that is none": described(digest="x", weights_sha256=[1]),
    "facts that are none": described(about=7),
    "nesting without end": b"[" * 100_000,
}


@pytest.mark.parametrize("what", sampled(DESCRIPTIONS, *range(0, len(DESCRIPTIONS), 3)))
def test_a_description_that_does_not_hold_is_refused(tmp_path: Path, what: str) -> None:
    refused(build(tmp_path / "champion.h5", DESCRIPTIONS[what], whole))


def test_layers_have_one_name_each_so_that_a_small_file_stays_small(tmp_path: Path) -> None:
    for what in ("the same layer a thousand times", "the description as a layer"):
        line = refused(build(tmp_path / "champion.h5", DESCRIPTIONS[what], whole))
        assert "do not have distinct names" in line


def test_a_file_that_holds_by_that_description_is_read(tmp_path: Path) -> None:
    assert np.array_equal(sandbox.read_champion(build(tmp_path / "champion.h5", described(), whole)).weights, WEIGHTS)


def test_files_of_keras_are_named(tmp_path: Path) -> None:
    for group in ("layers", "model_weights"):
        with h5py.File(tmp_path / "champion.h5", "w") as file:
            file.create_group(group)
        assert "a Keras file" in refused(tmp_path / "champion.h5")


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    file = champion(tmp_path / "real.h5")
    path = tmp_path / "champion.h5"
    path.symlink_to(file)
    assert "a link" in refused(path)
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in refused(path)
    path.unlink()
    assert "missing" in refused(path)
    with open(path, "wb") as sparse:
        sparse.truncate(1 << 33)
    assert "expected at most" in refused(path)


# The process that reads


def in_a_child(program: str) -> subprocess.CompletedProcess[str]:
    statements = f"from evo.store import sandbox\nsandbox.CPU_SECONDS = 1\nsandbox._limit(1000)\n{program}"
    return subprocess.run(
        [sys.executable, "-c", statements], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_process_that_reads_can_open_nothing_and_can_neither_grow_nor_last() -> None:
    assert "Too many open files" in in_a_child("open('/etc/hostname')").stderr
    assert "Too many open files" in in_a_child("import socket; socket.socket()").stderr
    assert "MemoryError" in in_a_child("bytearray(1 << 29)").stderr
    assert in_a_child("while True: pass").returncode < 0
    assert in_a_child("print(len(bytearray(1 << 26)))").stdout == "67108864\n"


ENDINGS = {
    "import os; os.kill(os.getpid(), 11)": "signal SIGSEGV",
    "import os; os.abort()": "signal SIGABRT",
    "import os; os._exit(0)": "exit 0",
    "raise RuntimeError": "exit 1",
    "import os; os._exit(5)": "more memory",
    "import time; time.sleep(60)": "signal SIGKILL",
    "import os\nwhile True: os.write(1, bytes(100000))": "exit 1",  # nobody listens any more
    "import os; os.write(1, bytes(16))": "is invalid",
    "import os; os.write(1, b'\\x08' * 24)": "gave an incomplete answer",
    "import os; os.write(1, (1).to_bytes(8, 'little') + (3).to_bytes(8, 'little') + b'1234')": "incomplete answer",
}


@pytest.mark.parametrize("program", sampled(ENDINGS, *range(3)))
def test_however_the_process_that_reads_ends_it_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    program_and_end = f"{program}\nimport os; os._exit(0)"
    instead = (
        f"from evo.store import sandbox; sandbox.child = lambda *_, **__: exec({program_and_end!r}); sandbox.serve()"
    )
    file = champion(tmp_path / "champion.h5")
    with sandbox.reading_several():
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "PROGRAM", instead)
            patch.setattr(sandbox, "WALL_SECONDS", 1.0 if "sleep" in program else 20.0)
            assert ENDINGS[program] in refused(file)
        if "signal" in ENDINGS[program]:  # an opener whose child crashed is not asked again
            assert np.array_equal(sandbox.read_champion(file).weights, WEIGHTS)


OPENERS = {
    "raise RuntimeError": "exit 1",
    "import os; os.kill(os.getpid(), 9)": "signal SIGKILL",
    "import socket; socket.socket(fileno=0).recv(4); raise SystemExit(7)": "exit 7",
}


@pytest.mark.parametrize("program", sampled(OPENERS))
def test_an_opener_that_ends_by_itself_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    file = champion(tmp_path / "champion.h5")
    with sandbox.reading_several():
        with monkeypatch.context() as patch:
            patch.setattr(sandbox, "PROGRAM", program)
            assert OPENERS[program] in refused(file)
        assert np.array_equal(sandbox.read_champion(file).weights, WEIGHTS)


def test_where_no_child_can_be_forked_that_is_said_and_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "import os; from evo.store import sandbox\ndef fork(): raise OSError\nos.fork = fork; sandbox.serve()"
    monkeypatch.setattr(sandbox, "PROGRAM", failing)
    with pytest.raises(ResourceError, match="cannot start a process to read"):
        sandbox.read_champion(champion(tmp_path / "champion.h5"))


def test_who_reads_it_leaves_no_process_behind(tmp_path: Path) -> None:
    champion(tmp_path / "champion.h5")
    sandbox.read_champion(tmp_path)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    with sandbox.reading_several():
        sandbox.read_champion(tmp_path)
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)  # the opener waits
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_all_champions_meanwhile_are_read_by_children_of_one_process_that_holds_none_of_them(tmp_path: Path) -> None:
    file = champion(tmp_path / "champion.h5")
    with sandbox.reading_several():
        openers = []
        for _ in range(3):
            assert np.array_equal(sandbox.read_champion(file).weights, WEIGHTS)
            (tmp_path / "text.h5").write_bytes(sandbox.SIGNATURE)
            refused(tmp_path / "text.h5")
            openers += children(os.getpid())
        assert len({*openers}) == 1
        links = [os.readlink(f"/proc/{openers[0]}/fd/{name}") for name in os.listdir(f"/proc/{openers[0]}/fd")]
        assert not [link for link in links if str(tmp_path) in link]
        assert len(links) == 5  # its socket, twice nothing, and the pipe that wakes it
        with ThreadPoolExecutor(1) as pool:  # a thread has its own
            pool.submit(sandbox.read_champion, file).result()
        pid = os.fork()
        if not pid:  # as has a fork
            os._exit(int(not np.array_equal(sandbox.read_champion(file).weights, WEIGHTS)))
        assert os.waitpid(pid, 0)[1] == 0
        assert children(os.getpid()) == openers[:1]


READ = "from pathlib import Path; import sys; from evo.store import sandbox; sandbox.read_champion(Path(sys.argv[1]))"


def test_it_ends_with_who_asked_for_it_even_while_it_reads_a_large_file(tmp_path: Path) -> None:
    path = champion(tmp_path / "champion.h5")
    os.truncate(path, 1 << 31)
    for _ in range(3):  # now and then the system does not list the child in time, and it has read all
        asking = subprocess.Popen([sys.executable, "-c", READ, path], cwd=ROOT)
        if (pid := until_reading(asking)) is not None:
            break
        asking.kill()
        asking.wait()
    assert pid is not None
    with asking:
        try:
            os.kill(pid, signal.SIGSTOP)  # so that it cannot end because it has read everything
            asking.kill()
            asking.wait()
            ended = time.monotonic() + 5
            with suppress(FileNotFoundError, ProcessLookupError):
                while Path(f"/proc/{pid}/cmdline").read_bytes():
                    assert time.monotonic() < ended
                    time.sleep(0.01)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def children(process: int) -> list[int]:
    return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def until_reading(asking: subprocess.Popen[bytes]) -> int | None:
    """Return the id of the grandchild that reads, as soon as it may open no file any more; None: not seen in time."""
    ended = time.monotonic() + 60
    while time.monotonic() < ended and asking.poll() is None:
        with suppress(FileNotFoundError, ProcessLookupError):
            for pid in [pid for opener in children(asking.pid) for pid in children(opener)]:
                limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
                if any(line.split()[3] == "0" for line in limits if line.startswith("Max open files")):
                    return pid
        time.sleep(0.001)
    return None


@pytest.mark.skipif(os.getuid() == 0 and shutil.which("setpriv") is None, reason="root may raise any limit")
def test_a_lower_limit_than_it_would_set_is_kept(tmp_path: Path) -> None:
    path = champion(tmp_path / "champion.h5")
    program = f"import resource; resource.setrlimit(resource.RLIMIT_CPU, (5, 5)); {READ}"
    ordinary = ["setpriv", "--bounding-set=-sys_resource"] if os.getuid() == 0 else []
    subprocess.run([*ordinary, sys.executable, "-c", program, path], cwd=ROOT, check=True)


def test_a_champion_is_read_where_there_is_no_proc(tmp_path: Path) -> None:
    path = champion(tmp_path / "champion.h5")
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to hide /proc")
    subprocess.run([*hidden, sys.executable, "-c", READ, path], cwd=ROOT, check=True)
