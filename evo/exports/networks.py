"""Champions as files of other programs: Keras and TensorFlow models, NumPy arrays, ONNX, Python for decision trees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.errors import ConfigurationError

if TYPE_CHECKING:
    from evo.environment import Normalisation
    from evo.networks.network import Network
    from evo.store.run import Run

FORMATS = ("savedmodel", "keras", "checkpoint", "npz", "onnx", "python")
SUFFIXES = {"keras": ".keras", "npz": ".npz", "onnx": ".onnx", "python": ".py"}  # which those who read them insist on


def write_network(file: Path, kind: str, run: Run) -> None:
    """Write the champion in one of FORMATS.

    Raises ConfigurationError where the library that it needs is not installed, or the champion has no such form.
    """
    from evo.config.environments import environment_of

    network, weights, environment = run.config.network(), run.champion.weights, environment_of(run.config.environment)
    if kind not in ("npz", "python") and not network.differentiable:
        instead = "--to python or --to npz" if network.called == "decision tree" else "--to npz"
        raise ConfigurationError(f"--to {kind}: a {network.called} has no such form; use {instead}")
    if kind == "npz":
        import numpy as np

        arrays: dict[str, Any] = dict(zip(network.names(), network.split(weights), strict=True))
        np.savez(file, **arrays, **layers_of(network, environment.normalisation))
    elif kind == "onnx":
        from evo.exports.onnx_model import FACTS, onnx_model

        facts = {name: run.champion.about[name] for name in FACTS if name in run.champion.about}
        discrete = not environment.continuous
        model = onnx_model(network, weights, facts, discrete=discrete, normalisation=environment.normalisation)
        file.write_bytes(model.SerializeToString())
    elif kind == "python":
        from evo.exports.decision_tree import python_file

        file.write_text(python_file(run), encoding="utf-8")
    else:
        _write_keras(file, kind, run, environment.normalisation)


def layers_of(network: Network, normalisation: Normalisation | None = None) -> dict[str, Any]:
    """Return what else a player of exported arrays needs: layers in order, windows, padding, activations.

    With `normalisation`, also the moments of observations.
    """
    import numpy as np

    from evo.networks.network import EPSILON

    names = [f"{i}_{layer.kind}" for i, layer in enumerate(network.layers)]
    about: dict[str, Any] = {"layers": names, "epsilon": np.float32(EPSILON)}
    about |= {"shape": network.shape, "actions": network.actions}
    if normalisation:
        about |= {f"observation_{name}": value for name, value in normalisation._asdict().items()}
    about["activations"] = [layer.activation for layer in network.layers]
    if not network.options.layers:  # all hidden layers have the same
        about["activation"] = network.options.activation
    for name, layer in zip(names, network.layers, strict=True):
        if layer.kind == "one_hot":
            about[f"{name}_codes"] = layer.filters // layer.channels
        elif layer.kind not in ("dense", "identity"):
            down, right = layer.pad_after
            about[f"{name}_padding"] = [(0, 0), (layer.pad, down), (layer.pad_left, right), (0, 0)]
            about[f"{name}_stride"] = layer.stride
            if not layer.weighted:
                about[f"{name}_size"] = layer.kernel
    return about


def _write_keras(file: Path, kind: str, run: Run, normalisation: Normalisation | None) -> None:
    """Write the champion as a Keras model, which is made on the CPU."""
    import os

    from evo.networks.keras_form import build_keras, set_weights
    from evo.workers import devices
    from evo.workers.hardware import VISIBLE
    from evo.workers.placement import NO_GPU

    os.environ.setdefault(VISIBLE, NO_GPU)
    devices.import_tensorflow(on_gpu=False, wanted=f"--to {kind}", otherwise=", or use --to npz, which needs neither")
    model = build_keras(run.config.network(), normalisation=normalisation)
    set_weights(model, run.config.network(), run.champion.weights)
    if kind == "savedmodel":
        model.export(str(file), verbose=False)
    elif kind == "keras":
        model.save(str(file))
    else:
        import tensorflow as tf

        manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(file), max_to_keep=1)
        manager.save(int(run.champion.about.get("generation", 0)))
