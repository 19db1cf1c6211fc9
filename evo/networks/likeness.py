"""Whether a champion's network computes what another one does whose arrays have the same shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from evo.errors import ConfigurationError
from evo.networks.layer import Layer
from evo.networks.network import Network, Options

SHORT = ("conv", "padding", "activation")  # of the short form, what may differ where no shape does


def refuse_unlike(policy: object, network: Network, learning: str, *, any_output: bool = False) -> None:
    """Raise a ConfigurationError where a network of this [policy] computes something else; it names the options.

    Arrays are known to have the same shapes, and the number of outputs may be another one. `learning` is the algorithm
    that sets `policy.output` itself; empty: none does. `any_output`: outputs without an activation may get one.
    """
    if network.short_name == "vector":
        return
    try:
        theirs = Options.model_validate(policy).resolved()
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, ("policy", *wrong["loc"])))
        raise ConfigurationError(f"its {name:.80} is not known here ({wrong['msg']:.120})") from error
    ours = network.options
    if any_output and not theirs.output:
        theirs = theirs.model_copy(update={"output": ours.output})
    if theirs.output != ours.output and learning:
        there, here = shown(theirs.output), shown(ours.output)
        with_it = "; start from a champion that has it"
        raise ConfigurationError(f"its network has policy.output = {there}, and {learning} needs {here}{with_it}")
    wanted = computed(theirs, network)
    if wanted == computed(ours, network):
        return
    differing = {name: pair for name, pair in pairs(theirs, ours).items() if pair[0] != pair[1]}
    for name in [one for one in differing if one in SHORT and wanted is not None]:
        others = {other: differing[other][0] for other in differing if other != name and "." not in other}
        if computed(ours.model_copy(update={"inputs": theirs.inputs, **others}), network) == wanted:
            del differing[name]  # it decides nothing here
    if not differing:
        raise ConfigurationError("its network has other layers than policy describes here")
    had = " and ".join(f"policy.{name} = {shown(there)}" for name, (there, _) in differing.items())
    here = " and ".join(shown(here) for _, here in differing.values())
    are, those = ("they are", "those") if differing.keys() - {next(iter(differing))} else ("it is", "that")
    raise ConfigurationError(f"its network has {had}, and here {are} {here}; set {those}")


def computed(options: Options, like: Network) -> list[Layer] | None:
    """Return what decides what a network of these options computes from an observation; None: it does not fit there."""
    try:
        network = Network.build(options, like.shape, like.actions, like.outputs - like.actions)
    except ConfigurationError:
        return None
    return [replace(layer, padding="") for layer in network.layers]  # zeros have numbers of their own


def pairs(theirs: Options, ours: Options) -> dict[str, tuple[Any, Any]]:
    """Return options as both have them, layers as lines where one of both has lines."""
    found: dict[str, tuple[Any, Any]] = {}
    for (name, here), there in zip(ours.inputs.items(), theirs.inputs.values(), strict=False):
        found[f"inputs.{name}.layers"] = there.layers, here.layers
    if theirs.layers or ours.layers:
        found["layers"] = [*map(str, theirs.hidden())], [*map(str, ours.hidden())]
    else:
        found |= {name: (getattr(theirs, name), getattr(ours, name)) for name in SHORT}
    return {**found, "output": (theirs.output, ours.output)}


def shown(value: object) -> str:
    """Return a text or a list as TOML writes it."""
    return f"{json.dumps(value):.400}"
