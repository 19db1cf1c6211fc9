"""Write a champion, or the metrics of a run, for other software."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, counted, notice, printable, typed
from evo.exports import metrics, networks
from evo.files.durable import refuse_unwritable_whole, write_whole
from evo.files.layout import CHAMPION
from evo.plugins import registry

if TYPE_CHECKING:
    from evo.store.run import Run

PAGE = "html"
ENDINGS = {**networks.SUFFIXES, **metrics.SUFFIXES, PAGE: ".html"}
MOST_EPISODES = 10_000
LOADED = {
    "savedmodel": "model = tf.saved_model.load({file!r}); model.serve({inputs})",
    "keras": "keras.models.load_model({file!r})({inputs})",
    "checkpoint": "tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint({file!r}))",
    "npz": "numpy.load({file!r})",
    "python": "from {stem} import act; act(observation)",
    "onnx": "onnxruntime.InferenceSession({file!r}).run(None, {feeds})",
    "csv": "pandas.read_csv({file!r})",
    "parquet": "pandas.read_parquet({file!r})",
    "tensorboard": "tensorboard --logdir {typed}",
}
READER = (
    "where model has the same layers: keras.models.load_model of what --to keras writes, or "
    "evo.networks.keras_form.build_keras(network)"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir")
    file = "the file or directory to write, which must not exist yet; csv and python: standard output"
    parser.add_argument("file", metavar="FILE", nargs="?", help=file)
    parser.add_argument(
        "--to",
        choices=(*networks.FORMATS, PAGE, *metrics.FORMATS),
        required=True,
        help="savedmodel and checkpoint are directories, keras, npz and onnx are files; python is a function, for "
        "decision trees; html is a page on which the champion of Snake, the duel or Connect Four plays with the same "
        "bits and is verified, or one that shows episodes of another game; csv, parquet and tensorboard (a directory) "
        "have the metrics",
    )
    parser.add_argument("--output", metavar="FILE", help="the same as FILE; default for a page: NAME_OF_THE_RUN.html")
    episodes = "test episodes that a page can verify (default: 200), or whose worst, median and best it shows "
    parser.add_argument("--episodes", metavar="N", help=f"{episodes}(default: 32), 1 to 10000")
    add(parser, "--plugin")


def main(arguments: Namespace) -> int:
    """Write the champion or the metrics; the run directory stays as it is, and stays the record."""
    kind, source = str(arguments.to), arguments.run_dir
    episodes = whole("--episodes", arguments.episodes, 1, MOST_EPISODES)
    if episodes and kind != PAGE:
        raise ConfigurationError(f"--episodes goes with --to {PAGE}, not with --to {kind}")
    file = _file(arguments, kind, source)
    from evo.store.run import Run

    if kind in metrics.FORMATS:
        return _table(file, kind, source)
    run = Run(source, flags={"backend": "serial"})
    if file is None:
        print(networks.python_file(run), end="")
        return 0
    if kind == PAGE:
        return _page(file, run, source, episodes)
    write_whole(file, lambda place: networks.write_network(place, kind, run))
    network, shown = run.config.network(), printable(str(file))
    further = network.outputs - network.actions
    heads = f", then {further} more (value and other heads)" if further else ""
    shape = " x ".join(map(str, network.shape))
    if kind == "python":
        print(f"{shown}: a function of the {math.prod(network.shape)} numbers of an observation")
    else:
        print(f"{shown}: float32 observations [B, {shape}] to {network.actions} scores{heads}")
    names = ["observations", *(["state"] if network.memory else [])]
    inputs = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    feeds = f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}"
    if network.memory:
        print(f"it takes hidden states [B, {network.memory}], zeros where an episode begins, and returns the next ones")
    if run.config.environment.track.get("normalise"):
        print("it takes raw observations and normalises them itself, as in training")
    print(f"load it with: {LOADED[kind].format(file=str(file), stem=printable(file.stem), inputs=inputs, feeds=feeds)}")
    if kind == "checkpoint":
        print(READER)
    return 0


def _file(arguments: Namespace, kind: str, source: Path) -> Path | None:
    """Return the file to write, None for standard output; ConfigurationError where it is not named or cannot be."""
    if arguments.file and arguments.output:
        raise ConfigurationError("name the file to write once, as FILE or as --output FILE")
    named = arguments.file or arguments.output
    if not named and kind in ("csv", "python"):
        return None
    if not named and kind != PAGE:
        raise ConfigurationError(f"name the file to write: evo export RUN_DIR FILE --to {kind}")
    file = Path(named or f"{_title(source)}.html")
    suffix = ENDINGS.get(kind, "")
    if suffix and file.suffix != suffix:
        raise ConfigurationError(f"{file}: the name of a file for --to {kind} ends with {suffix}")
    if file.exists() or file.is_symlink():
        raise ConfigurationError(f"{file}: is there already; nothing is written over")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file}: there is no directory {file.parent}")
    from evo.store.run_directory import occupied

    if what := occupied(file.parent):
        raise ConfigurationError(f"{file}: {what}, and an export never changes one; choose another folder")
    refuse_unwritable_whole(file)
    return file


def _title(source: Path) -> str:
    """Return the name of a run, which is that of its directory, or of a champion's file."""
    place = source.resolve()
    if place.name == CHAMPION:
        return printable(place.parent.name)
    return printable(place.stem if place.is_file() else place.name)


def _table(file: Path | None, kind: str, source: Path) -> int:
    from evo.store.run import Run

    run = Run(source)
    for problem in run.store.metrics_mistakes():
        notice(problem)
    if file is None:
        print(metrics.csv_of(run.metrics), end="")
        return 0
    write_whole(file, lambda place: metrics.write_table(place, kind, run.metrics))
    print(f"{printable(str(file))}: {counted(len(run.metrics), 'generation')}")
    load = LOADED[kind].format(file=str(file), typed=typed([str(file)]))
    print(f"{'look at' if kind == 'tensorboard' else 'load'} it with: {load}")
    return 0


def _page(file: Path, run: Run, source: Path, episodes: int | None) -> int:
    from evo.report.champion import EPISODES, RECORDED, champion_page, recorded_page, scripts_of

    # No folders: a page is shared, and pages of equal champions are equal wherever these are.
    more = ["--episodes", str(episodes)] if episodes and episodes != EPISODES else []
    command = registry.command("evo", "export", source.resolve().name, "--to", PAGE, *more)
    if scripts_of(run.environment) is not None:
        number, what = episodes or EPISODES, "with {} to verify"
        text = champion_page(run, _title(source), printable(command), number).encode()
    else:
        number, what = episodes or RECORDED, "with the worst, the median and the best of {}"
        text = recorded_page(run, _title(source), printable(command), number)
    write_whole(file, lambda place: place.write_bytes(text))
    print(f"{printable(str(file))}: {file.stat().st_size / 1000:,.0f} kB, {what.format(counted(number, 'game'))}")
    print("open it in any browser; it needs no network and no other file")
    return 0
