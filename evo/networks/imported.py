"""The layers of a model of another program, as the network that computes the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from evo.errors import ConfigurationError
from evo.networks.network import Network, Options


@dataclass
class Imported:
    """The layers of a model as those of a network."""

    shape: tuple[int, ...]  # of an observation
    hidden: list[str] = field(default_factory=list)  # as in `policy.layers`
    outputs: int = 0
    output: str = ""  # activation of the outputs
    entries: Mapping[str, Imported] = field(default_factory=dict, kw_only=True)  # inputs with layers of their own

    @property
    def policy(self) -> dict[str, Any]:
        """The section [policy] of its network."""
        layers: dict[str, Any] = {"layers": self.hidden} if self.hidden else {"kind": "linear"}
        if self.entries:
            layers["inputs"] = {name: {"layers": entry.hidden} for name, entry in self.entries.items()}
        return {**layers, "output": self.output} if self.output else layers

    def network(self) -> Network:
        """Return the network that computes the same; ConfigurationError: a number of a layer is too large."""
        try:
            options = Options.model_validate(self.policy)
            if self.entries:
                options = options.resolved(entries={name: entry.shape for name, entry in self.entries.items()})
        except ValidationError as error:
            raise ConfigurationError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
        return Network.build(options, self.shape, self.outputs)
