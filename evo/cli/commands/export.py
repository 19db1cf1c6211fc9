"""Write a run's champion for TensorFlow, Keras or NumPy."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.cli.arguments import add
from evo.errors import ConfigurationError
from evo.plugins import registry

if TYPE_CHECKING:
    from evo.networks.network import Network
    from evo.training.finished import Finished

FORMATS = ("savedmodel", "keras", "checkpoint", "npz")
SUFFIXES = {"keras": ".keras", "npz": ".npz"}  # which those who read them insist on
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
    parser.add_argument("file", metavar="FILE", help="the file or directory to write, which must not exist yet")
    parser.add_argument(
        "--to", choices=FORMATS, required=True, help="savedmodel and checkpoint are directories, keras and npz files"
    )
    add(parser, "--plugin")


def main(arguments: Namespace) -> int:
    """Write the champion; the run directory stays as it is, and stays the record."""
    file, kind = Path(arguments.file), str(arguments.to)
    suffix = SUFFIXES.get(kind, "")
    if suffix and file.suffix != suffix:
        raise ConfigurationError(f"{file}: the name of a file for --to {kind} ends with {suffix}")
    if file.exists() or file.is_symlink():
        raise ConfigurationError(f"{file}: is there already; nothing is written over")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file}: there is no directory {file.parent}")
    from evo.training.finished import look_at

    registry.load(arguments.plugin)
    run = look_at(Path(arguments.run_dir))
    _written(file, kind, run)
    network = run.experiment.network()
    beside = network.outputs - network.actions
    heads = f", then {beside} more (value and other heads)" if beside else ""
    shape = " x ".join(map(str, network.shape))
    print(f"{file}: float32 observations [B, {shape}] to {network.actions} scores{heads}")
    print(f"load it with: {LOADED[kind].format(file=str(file))}")
    if kind == "checkpoint":
        print(READER)
    return 0


def _written(file: Path, kind: str, run: Finished) -> None:
    """Write beside the file under another name, and rename it when it is whole."""
    import shutil
    import warnings
    from tempfile import mkdtemp

    from evo.files.durable import resources

    write: Callable[[Path, Finished], None] = {
        "savedmodel": lambda file, run: _model(run, kind).export(str(file), verbose=False),
        "keras": lambda file, run: _model(run, kind).save(str(file)),
        "checkpoint": _checkpoint,
        "npz": _npz,
    }[kind]
    with resources("write", file):
        place = Path(mkdtemp(prefix=f".{file.name[:32]}.", dir=file.parent))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras's own, about NumPy's future
                write(place / file.name, run)
            (place / file.name).rename(file)
        finally:
            shutil.rmtree(place, ignore_errors=True)


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
