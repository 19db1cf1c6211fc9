"""Write a champion for Keras, TensorFlow or NumPy, or as a web page."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cli.arguments import add, whole
from evo.errors import ConfigurationError, counted, printable
from evo.plugins import registry
from evo.store.paths import CHAMPION

if TYPE_CHECKING:
    from evo.networks.network import Network
    from evo.training.finished import Finished

FORMATS = ("savedmodel", "keras", "checkpoint", "npz")
PAGE = "html"
SUFFIXES = {"keras": ".keras", "npz": ".npz", PAGE: ".html"}  # which those who read them insist on
MOST_EPISODES = 10_000
LOADED = {
    "savedmodel": "model = tf.saved_model.load({file!r}); model.serve(observations)",
    "keras": "keras.models.load_model({file!r})(observations)",
    "checkpoint": "tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint({file!r}))",
    "npz": "numpy.load({file!r})",
}
READER = (
    "where model has the same layers: keras.models.load_model of what --to keras writes, or "
    "evo.networks.keras_form.build_keras(network)"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command line."""
    add(parser, "run_dir")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the file or directory to write, which must not exist yet"
    )
    parser.add_argument(
        "--to",
        choices=(*FORMATS, PAGE),
        required=True,
        help="savedmodel and checkpoint are directories, keras and npz files; html is a page in which the champion of "
        "Snake plays with the same bits, and verifies it",
    )
    parser.add_argument("--output", metavar="FILE", help="the same as FILE; a page's default is NAME_OF_THE_RUN.html")
    parser.add_argument(
        "--episodes", metavar="N", help="test episodes that a page can verify, 1 to 10000 (default: 200)"
    )
    add(parser, "--plugin")


def main(arguments: Namespace) -> int:
    """Write the champion; the run directory stays as it is, and stays the record."""
    kind, source = str(arguments.to), Path(arguments.run_dir)
    episodes = whole("--episodes", arguments.episodes, 1, MOST_EPISODES)
    if episodes and kind != PAGE:
        raise ConfigurationError(f"--episodes goes with --to {PAGE}, not with --to {kind}")
    file = _file(arguments, kind, source)
    from evo.training.finished import look_at

    registry.load(arguments.plugin)
    run = look_at(source, {"backend": "serial"})
    if kind == PAGE:
        return _page(file, run, source, episodes)
    _written(file, lambda place: _write(place, kind, run))
    network = run.experiment.network()
    beside = network.outputs - network.actions
    heads = f", then {beside} more (value and other heads)" if beside else ""
    shape = " x ".join(map(str, network.shape))
    print(f"{file}: float32 observations [B, {shape}] to {network.actions} scores{heads}")
    print(f"load it with: {LOADED[kind].format(file=str(file))}")
    if kind == "checkpoint":
        print(READER)
    return 0


def _file(arguments: Namespace, kind: str, source: Path) -> Path:
    """Return the file to write; ConfigurationError where none is named, or nothing can be written there."""
    if arguments.file and arguments.output:
        raise ConfigurationError("name the file to write once, as FILE or as --output FILE")
    named = arguments.file or arguments.output
    if not named and kind != PAGE:
        raise ConfigurationError(f"name the file to write: evo export RUN_DIR FILE --to {kind}")
    file = Path(named or f"{_title(source)}.html")
    suffix = SUFFIXES.get(kind, "")
    if suffix and file.suffix != suffix:
        raise ConfigurationError(f"{file}: the name of a file for --to {kind} ends with {suffix}")
    if file.exists() or file.is_symlink():
        raise ConfigurationError(f"{file}: is there already; nothing is written over")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file}: there is no directory {file.parent}")
    return file


def _title(source: Path) -> str:
    """Return the name of a run, which is that of its directory, or of a champion's file elsewhere."""
    place = source.resolve()
    if place.name == CHAMPION:
        return printable(place.parent.name)
    return printable(place.stem if place.is_file() else place.name)


def _page(file: Path, run: Finished, source: Path, episodes: int | None) -> int:
    from evo.pages.champion import EPISODES, champion_page

    # No folders: a page is shared, and pages of equal champions are equal wherever these are.
    more = ["--episodes", str(episodes)] if episodes and episodes != EPISODES else []
    command = registry.command("evo", "export", source.resolve().name, "--to", PAGE, *more)
    text = champion_page(run, _title(source), printable(command), episodes or EPISODES).encode()

    def write(place: Path) -> None:
        place.write_bytes(text)

    _written(file, write)
    print(f"{file}: {file.stat().st_size / 1000:,.0f} kB, with {counted(episodes or EPISODES, 'game')} to verify")
    print("open it in any browser; it needs no network and no other file")
    return 0


def _written(file: Path, write: Callable[[Path], None]) -> None:
    """Write beside the file under another name, and rename it when it is whole."""
    import shutil
    import warnings
    from tempfile import mkdtemp

    from evo.files.durable import resources

    with resources("write", file):
        place = Path(mkdtemp(prefix=f".{file.name[:32]}.", dir=file.parent))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras's own, about NumPy's future
                write(place / file.name)
            (place / file.name).rename(file)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _write(file: Path, kind: str, run: Finished) -> None:
    """Write the champion in one of FORMATS."""
    if kind == "savedmodel":
        _model(run, kind).export(str(file), verbose=False)
    elif kind == "keras":
        _model(run, kind).save(str(file))
    elif kind == "checkpoint":
        _checkpoint(file, run)
    else:
        _npz(file, run)


def _npz(file: Path, run: Finished) -> None:
    import numpy as np

    network = run.experiment.network()
    arrays: dict[str, Any] = dict(zip(network.names(), network.split(run.champion.weights), strict=True))
    np.savez(file, **arrays, **layers_of(network))


def layers_of(network: Network) -> dict[str, Any]:
    """Return what a player of exported arrays needs besides them: layers in order, windows, padding, activations."""
    import numpy as np

    from evo.networks.network import EPSILON

    names = [f"{i}_{layer.kind}" for i, layer in enumerate(network.layers)]
    about: dict[str, Any] = {"layers": names, "epsilon": np.float32(EPSILON)}
    about |= {"shape": network.shape, "actions": network.actions}
    about["activations"] = [layer.activation for layer in network.layers]
    if not network.options.layers:  # all hidden layers have the same
        about["activation"] = network.options.activation
    for name, layer in zip(names, network.layers, strict=True):
        if layer.kind == "one_hot":
            about[f"{name}_codes"] = layer.filters // layer.channels
        elif layer.kind not in ("dense", "identity"):
            down = max((layer.out_height - 1) * layer.stride + layer.kernel - layer.height - layer.pad, 0)
            right = max((layer.out_width - 1) * layer.stride + layer.kernel - layer.width - layer.pad_left, 0)
            about[f"{name}_padding"] = [(0, 0), (layer.pad, down), (layer.pad_left, right), (0, 0)]
            about[f"{name}_stride"] = layer.stride
            if not layer.weighted:
                about[f"{name}_size"] = layer.kernel
    return about


def _checkpoint(file: Path, run: Finished) -> None:
    model = _model(run, "checkpoint")
    import tensorflow as tf

    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(file), max_to_keep=1)
    manager.save(int(run.champion.about.get("generation", 0)))


def _model(run: Finished, kind: str) -> Any:
    """Return the champion as a Keras model, on the CPU."""
    import os

    from evo.networks.keras_form import build_keras, set_weights
    from evo.workers import devices
    from evo.workers.placement import NO_GPU, VISIBLE

    os.environ.setdefault(VISIBLE, NO_GPU)
    devices.import_tensorflow(on_gpu=False, wanted=f"--to {kind}", otherwise=", or use --to npz, which needs neither")
    network = run.experiment.network()
    model = build_keras(network)
    set_weights(model, network, run.champion.weights)
    return model
