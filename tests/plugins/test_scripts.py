"""What a script or notebook defines itself is code of a run, as a plug-in's is."""

import functools
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evo.plugins import code, script

WALK = """
import evo, gymnasium, numpy as np
from sizes import *
import farther

REWARDS = {"near": 1.0}
FAR: int
if True:
    FAR = 3
    PLACES = np.zeros(2)
    PLACES[0] = 4.0
UNUSED = 5


def shown(x):
    return np.array([x + PLACES[0]], np.float32), {}


class Board:
    def __init__(self):
        self.x = STEP * farther.scale


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board, self.steps = Board(), 0
        return shown(self.board.x)

    def step(self, action):
        self.steps += 1
        self.board.x += (1 if action else -1)
        seen, info = shown(self.board.x)
        return seen, REWARDS["near"] * (abs(self.board.x) < FAR), False, self.steps > 7, info


gymnasium.register("Walk-v0", entry_point=Walk)
"""
TRAIN = """
seed = seen = 2
if __name__ == "__main__":
    experiment = evo.Experiment.build(
        run={"generations": GENERATIONS, "algorithm": "ga"}, environment={"id": "gymnasium:Walk-v0"},
        policy={"kind": "mlp", "dense": [2]}, workers={"backend": "serial"},
        ga={"population": 4, "parents": 2, "elites": 1, "episodes": 1}, validation={"episodes": 1, "finalists": 1},
    )
    for row in evo.train(experiment, "run"):
        print(row.generation)
    print(evo.Run("run").notes, evo.Run("run").store.identity.get("plugins", {}).keys())
"""
HELPERS = {"sizes.py": "STEP = 1\n", "farther.py": "scale = 1\n", "other.py": "scale = 1\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in HELPERS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(text: str, generations: int, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a script with the text."""
    Path("walk.py").write_text(text.replace("GENERATIONS", str(generations)))
    with Path("walk.py").open() as source:
        return subprocess.run([sys.executable, *(words or ["walk.py"])], stdin=source, text=True, capture_output=True)


@pytest.mark.long
def test_a_run_of_an_edited_environment_of_a_script_is_not_resumed(folder: Path) -> None:
    first = ran(WALK + TRAIN, 1)
    assert first.stdout == "0\n[] dict_keys(['__main__'])\n", first.stderr
    assert ran(WALK + "print(UNUSED)\n" + TRAIN, 2).stdout.startswith("5\n1\n[] ")
    refused = ran(WALK.replace("1.0", "-1.0") + TRAIN, 3)
    assert refused.stderr.endswith(
        "run was begun with other code:\nthe code of the environment or plug-in in this script differs from that of "
        "the run: REWARDS\nrestore that code, or go on in another run: choose another run_dir\n"
    )
    assert not ran(WALK + TRAIN + "    evo.write_report('run')\n", 2).stderr
    page = Path("run", "report.html").read_text()
    assert "The script or notebook that began this run trains the same again" in page
    assert "These lines train" not in page
    assert ran(WALK + TRAIN, 3, "-").stdout.startswith("2\n[] ")  # from the standard input: it has no source
    loops = "from math import *\nfor FAR in (4, 3):\n    print(FAR)\n"
    assert ran(WALK + loops + TRAIN + "for FAR in (4, 5):\n    print(FAR)\n", 4).stdout.startswith("4\n3\n3\n[] ")
    assert "the code of the environment" in ran(WALK + loops.replace("(4, 3)", "(3, 4)") + TRAIN, 5).stderr


@pytest.mark.long
def test_a_module_that_a_script_imports_for_its_environment_is_code_of_the_run_too(folder: Path) -> None:
    assert ran(WALK + TRAIN, 1, "-m", "walk").stdout.startswith("0\n[] ")
    train = "from apart import *\n" + TRAIN
    (folder / "apart.py").write_text(WALK)
    assert ran(train, 2).stdout.startswith("1\n[] ")
    anew = train.replace('"run"', '"new"')
    assert ran(anew, 1).stdout.endswith("dict_keys(['apart'])\n")
    (folder / "apart.py").write_text(WALK.replace("1.0", "-1.0"))
    assert "the code of plug-in apart differs" in ran(anew, 2).stderr


def digest(
    monkeypatch: pytest.MonkeyPatch, *cells: str, file: str = "", made_by: Any = "__main__:Walk", **values: Any
) -> str:
    main = ModuleType("__main__")
    vars(main).update(values)
    if file:
        Path(file).write_text("\n".join(cells))
        vars(main)["__file__"] = file
    else:
        vars(main)["In"] = ["", *cells]
    monkeypatch.setitem(sys.modules, "__main__", main)
    script._text.cache_clear()
    return script.of_plug_ins((made_by, [{}, None]), "").get(code.MAIN, "")


@pytest.mark.parametrize("file", ["walk.py", ""])
@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("> 7", "> 8", True),
        ("= 3\n", "= 4\n", True),
        ("x + PLACES", "x - PLACES", True),
        ("= 4.0", "= 5.0", True),
        ('"near": 1.0', '"near": 2.0', True),
        ("STEP * farther", "2 * farther", True),
        ("UNUSED = 5", "UNUSED = 6", False),
        ("UNUSED = 5", "if UNUSED:\n    seed = action = seen = 6", False),
        ("\n\n\nclass Board", "\n\n# a board\nclass Board", False),
    ],
)
def test_all_that_an_environment_of_a_script_reads_there_counts_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, before: str, after: str, counts: bool
) -> None:
    assert WALK.count(before) == 1
    same = digest(monkeypatch, WALK, file=file)
    assert same
    assert (digest(monkeypatch, WALK.replace(before, after), file=file) != same) == counts


def test_what_differs_in_a_script_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(before: str, now: str) -> str:
        (line,) = code.changes({"plugins": {code.MAIN: before}}, {"plugins": {code.MAIN: now}})
        return line.removeprefix("the code of the environment or plug-in in this script differs from that of the run")

    made = functools.partial(digest, monkeypatch, file="walk.py")
    first = made(WALK)
    assert said(first, made(WALK.replace("> 7", "> 8").replace("= 4.0", "= 5.0"))) == ": PLACES, Walk"
    assert said(first, made(WALK.replace("< FAR", "< 2"))) == ": FAR, Walk"  # one is no longer read
    (folder / "farther.py").write_text("scale = 2\n")
    assert said(first, made(WALK)) == ": farther.py"
    (folder / "farther.py").write_text(HELPERS["farther.py"])
    walk = type("Walk", (), {"__module__": "__main__"})
    here, there = (made(WALK, made_by=functools.partial(walk, size)) for size in (1, 2))
    assert said(here, there) == ": the arguments that it is made with"
    everything = WALK
    for name in ("Board", "Walk", "shown", "REWARDS", "STEP"):
        everything = everything.replace(name, f"{name}s").replace("entry_point=Walks", "entry_point=Walk")
    assert said(first, made(everything + "Walk = Walks\n")).endswith(", ...")
    old, other = (one.partition("\n")[0] for one in (first, here))  # of an earlier version
    assert said(old, here) == said(other, first) == ""
    assert code.changes({"plugins": {code.MAIN: old}}, {"plugins": {code.MAIN: first}}) == []


def test_files_that_an_environment_of_a_script_imports_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = WALK + "import other\n"
    monkeypatch.setitem(sys.modules, "sizes", sizes := ModuleType("sizes"))
    vars(sizes)["STEP"] = 1
    before = digest(monkeypatch, text, file="walk.py", STEP=1)
    (folder / "other.py").write_text("scale = 2\n")
    assert digest(monkeypatch, text, file="walk.py", STEP=1) == before
    for name in ("sizes.py", "farther.py"):
        (folder / name).write_text(HELPERS[name] + "\n")
        assert digest(monkeypatch, text, file="walk.py", STEP=1) != before
        (folder / name).write_text(HELPERS[name])


def test_the_last_cell_that_defines_a_name_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = WALK.replace("> 7", "> 8")
    assert digest(monkeypatch, other, "no python", "await it", WALK) == digest(monkeypatch, WALK)
    assert digest(monkeypatch, WALK, other) != digest(monkeypatch, WALK)
    assert digest(monkeypatch, WALK, "Walk.metadata = {}") != digest(monkeypatch, other, "Walk.metadata = {}")


@pytest.mark.parametrize("file", ["walk.py", ""])
@pytest.mark.parametrize(
    ("later", "far", "counts"),
    [
        ("for FAR in (1, 3):\n    pass\n", 3, False),
        ("for FAR in (1, 2):\n    pass\n", 2, True),
        ("FAR = 2\n", 3, False),  # which has not run
        ("FAR = 2\n", 2, True),
        ("FAR += 3\n", 3, True),  # of a loop before: 0 by what is written out
        ("FAR = 3.0\n", 3.0, True),
        ("from math import *\n", 3, False),
        ("from sizes import *\n", 3, False),
        ("import os, numpy as np\n", 3, False),
        ("import math as np\n", 3, True),
    ],
)
def test_another_binding_of_a_name_counts_where_its_value_differs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, later: str, far: float, counts: bool
) -> None:
    text = WALK if "+=" not in later else WALK.replace("FAR = 3", "FAR = 0")
    before = digest(monkeypatch, text, file=file, FAR=3 if text == WALK else 0, STEP=1)
    monkeypatch.setitem(sys.modules, "sizes", ModuleType("sizes"))
    assert (digest(monkeypatch, text, later, file=file, FAR=far, STEP=1) != before) == counts


def test_numbers_that_a_script_computes_count_and_what_its_code_counts_does_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(cell: str, size: Any = None, **values: Any) -> str:
        walk = type("Walk", (), {"__module__": "__main__", "size": size})
        return digest(monkeypatch, cell, made_by=walk, Walk=walk, **values)

    text = WALK.replace("FAR = 3", "FAR = int(sys.argv[1])")
    assert len({found(text, FAR=3), found(text, FAR=4)}) == 2
    text = WALK.replace("    def reset", "    size = int(sys.argv[1])\n    def reset")
    assert len({found(text, 3), found(text, 4)}) == 2
    assert len({found(text.replace("int(sys.argv[1])", "3"), 3), found(text.replace("int(sys.argv[1])", "3"), 4)}) == 1
    counter = WALK.replace("FAR = 3", "FAR = int(0)").replace("        super()", "        global FAR\n        FAR += 1")
    assert len({found(counter, FAR=0), found(counter, FAR=9)}) == 1
    nested = "def maker(size):\n    return lambda: Walk(size)"
    exec(nested, named := {"__name__": "__main__"})
    made = {digest(monkeypatch, WALK, nested, made_by=named["maker"](size)) for size in (1, 2)}
    assert len(made) == 2
    assert "" not in made


def test_whatever_makes_the_environment_of_a_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(text: str, how: Any) -> str:
        return digest(monkeypatch, WALK + text, file="walk.py", made_by=how)

    anonymous, smaller = (eval(f"lambda: Walk({size})", {"__name__": "__main__"}) for size in (7, 6))
    walk = type("Walk", (), {"__module__": "__main__"})
    assert made("", anonymous) == made("UNUSED = 6\n", anonymous) != made("", smaller)
    assert made("", anonymous) != made("Walk.most = 6\n", anonymous)
    assert made("", walk) == made("UNUSED = 6\n", "__main__:Walk") != ""
    one, other = (made("", functools.partial(walk, size)) for size in (1, 2))
    assert one != other
    assert made("", "__main__:Nothing") == ""  # as of a class that no statement defines
