"""Champions as files of other programs: Keras and TensorFlow models, NumPy arrays, ONNX, Python for decision trees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.errors import ConfigurationError, printable
from evo.lazy import tf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evo.environment import Normalisation
    from evo.networks.network import Network
    from evo.store.run import Run

TAKEN = ("observation", "min", "max", "float")  # names that an exported function uses itself
FORMATS = ("savedmodel", "keras", "checkpoint", "npz", "onnx", "python")
SUFFIXES = {"keras": ".keras", "npz": ".npz", "onnx": ".onnx", "python": ".py"}  # which those who read them insist on


def write_network(file: Path, kind: str, run: Run) -> None:
    """Write the champion in one of FORMATS; ConfigurationError: a library is missing, or it has no such form.

    OSError: the file cannot be written.
    """
    network, weights, environment = run.config.network(), run.champion.weights, run.environment
    if kind not in ("npz", "python") and not network.differentiable:
        instead = "--to python or --to npz" if network.short_name == "decision tree" else "--to npz"
        raise ConfigurationError(f"--to {kind}: a {network.short_name} has no such form; use {instead}")
    if kind == "npz":
        import numpy as np

        arrays: dict[str, Any] = dict(zip(network.names(), network.split(weights), strict=True))
        np.savez(file, **arrays, **layers_of(network, environment.normalisation))
    elif kind == "onnx":
        from evo.exports.onnx_model import FACTS, onnx_model

        facts = {name: run.champion.about[name] for name in FACTS if name in run.champion.about}
        discrete = not environment.continuous
        by = environment.normalisation
        file.write_bytes(onnx_model(network, weights, facts, discrete=discrete, normalisation=by))
    elif kind == "python":
        file.write_text(python_file(run), encoding="utf-8")
    else:
        _write_keras(file, kind, run, environment.normalisation)


def layers_of(network: Network, normalisation: Normalisation | None = None) -> dict[str, Any]:
    """Return what else a player of arrays needs: layers, windows, padding, activations, moments of observations."""
    import numpy as np

    from evo.networks.layer import WINDOWED
    from evo.networks.network import EPSILON

    names = [f"{i}_{layer.kind}" for i, layer in enumerate(network.layers)]
    about: dict[str, Any] = {"layers": names, "epsilon": np.float32(EPSILON)}
    about |= {"shape": network.shape, "actions": network.actions}
    if normalisation:
        about |= {f"observation_{name}": value for name, value in normalisation._asdict().items()}
    for part in network.parts:
        about[f"entry_{part.name}"] = [part.begin, part.first, part.end]
        about[f"entry_{part.name}_shape"] = part.shape
    about["activations"] = [layer.activation for layer in network.layers]
    if not network.options.layers:  # all hidden layers have the same
        about["activation"] = network.options.activation
    for name, layer in zip(names, network.layers, strict=True):
        if layer.kind == "one_hot":
            about[f"{name}_codes"] = layer.filters // layer.channels
        elif layer.kind in WINDOWED:
            down, right = layer.pad_after
            about[f"{name}_padding"] = [(0, 0), (layer.pad, down), (layer.pad_left, right), (0, 0)]
            about[f"{name}_stride"] = layer.stride
            if not layer.weighted:
                about[f"{name}_size"] = layer.kernel
    return about


def _write_keras(file: Path, kind: str, run: Run, normalisation: Normalisation | None) -> None:
    import os

    from evo.networks.keras_form import build_keras, set_weights
    from evo.workers import devices
    from evo.workers.hardware import VISIBLE
    from evo.workers.placement import NO_GPU

    os.environ.setdefault(VISIBLE, NO_GPU)
    devices.import_tensorflow(on_gpu=False, wanted=f"--to {kind}", otherwise=", or use --to npz, which needs neither")
    model = build_keras(run.config.network(), normalisation=normalisation)
    set_weights(model, run.config.network(), run.champion.weights)
    try:
        if kind == "savedmodel":
            model.export(str(file), verbose=False)
        elif kind == "keras":
            model.save(str(file))
        else:
            manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(file), max_to_keep=1)
            manager.save(max(run.fact("generation") or 0, 0))
    except tf.errors.OpError as error:  # as of a full disk; its message has paths, and what the system says at the end
        raise OSError(error.message.rpartition("; ")[2].partition(" [Op:")[0]) from error


ALLOWED = '''

def act(observation, action_mask):
    """Return the action of the tree, or the first one that is allowed, where its own has a 0 in `action_mask`."""
    action = tree(observation)
    return action if action_mask[action] else list(action_mask).index(1)
'''


def python_file(run: Run) -> str:
    """Return a file with the champion as a function; ConfigurationError where it is no decision tree."""
    try:
        text = python_of_run(run)
    except ConfigurationError as error:
        raise ConfigurationError(f"--to python writes decision trees: {error}") from error
    experiment = run.config  # was validated; what else is said of the champion may be any text, which would be code
    about = f"algorithm {experiment.algorithm}, seed {experiment.run.seed}"
    game = json.dumps(experiment.environment.title()).strip('"').replace('"', "'").replace("\\", "/")
    return f'"""A decision tree that plays {game} ({about})."""\n\n\n{text}'


def python_of_run(run: Run) -> str:
    """Return a champion as `python_of` does; of a game that masks actions, `act(observation, action_mask)`.

    ConfigurationError where it is no tree, or ranks the actions of such a game.
    """
    network, environment, weights = run.config.network(), run.environment, run.champion.weights
    names = environment.observation_names, environment.action_names
    text = python_of(network, weights, *names, environment.normalisation)
    if environment.game is None or not environment.game.masked:
        return text
    *_, kernel, bias = network.split(weights)
    scores = kernel + bias
    if {*scores.sum(axis=1).tolist(), *scores.max(axis=1).tolist()} != {1.0}:
        raise ConfigurationError(
            "the game masks actions, and the leaves of this tree rank them, which no tree of gp does; use --to npz"
        )
    return text.replace("def act(", "def tree(", 1) + ALLOWED


def python_of(
    network: Network,
    weights: NDArray[np.float32],
    inputs: Sequence[str] = (),
    actions: Sequence[str] = (),
    normalisation: Normalisation | None = None,
) -> str:
    """Return `act(observation)`, which takes the numbers of an observation in order and returns an action.

    weights [P]; names of inputs and actions may be left out. With `normalisation` the function takes observations as
    they are before it. ConfigurationError where the network is no tree.
    """
    from evo.evolution.trees import INPUT, Trees

    trees = Trees(network, 1.0)
    nodes = trees.tree(weights)
    used = sorted({node.value for node in nodes if node.ret == INPUT})
    names = {k: inputs[k] if k < len(inputs) and _is_free(inputs[k], inputs) else f"input_{k}" for k in used}
    choices = {a: f"  # {printable(actions[a])}" if a < len(actions) else "" for a in range(trees.actions)}
    lines = ["def act(observation):", f'    """Return an action, from 0 to {trees.actions - 1}."""']
    lines += [f"    {names[k]} = {_number(k, normalisation)}" for k in used]
    cut = shortest if normalisation is None else halfway
    return "\n".join([*lines, *_branches(iter(nodes), names, choices, cut, "    ")]) + "\n"


def _number(k: int, by: Normalisation | None) -> str:
    """Return what number `k` of an observation is to the tree."""
    if by is None:
        return f"observation[{k}]"
    mean, deviation = float(by.mean.flat[k]), float(by.deviation.flat[k])
    return f"min(max((float(observation[{k}]) - {mean!r}) / {deviation!r}, {-by.limit}), {by.limit})"


def _is_free(name: str, names: Sequence[str]) -> bool:
    """Return whether a variable can have this name, which no other input has."""
    return name.isidentifier() and not iskeyword(name) and name not in TAKEN and names.count(name) == 1


def _branches(
    nodes: Iterator[Any], names: dict[int, str], actions: dict[int, str], cut: Callable[[float], float], indent: str
) -> Iterator[str]:
    node = next(nodes)
    if node.arity == 0:
        yield f"{indent}return {node.value}{actions[node.value]}"
        return
    name, threshold = names[next(nodes).value], cut(next(nodes).value)
    yield f"{indent}if {name} < {threshold!r}:"
    yield from _branches(nodes, names, actions, cut, indent + "    ")
    yield from _branches(nodes, names, actions, cut, indent)


def shortest(threshold: float) -> float:
    """Return the number of fewest digits that divides all float32 values as `threshold`, itself a float32, does."""
    below = _below(threshold)
    return next(short for digits in range(1, 18) if below < (short := float(f"{threshold:.{digits}g}")) <= threshold)


def halfway(threshold: float) -> float:
    """Return the number that divides float64 values as `threshold` divides them when they are rounded to float32."""
    return (_below(threshold) + float(threshold)) / 2


def _below(threshold: float) -> float:
    import numpy as np

    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
