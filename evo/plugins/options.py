"""What every section of an experiment file has in common: strict types, no unknown keys, no NaN."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One section of the experiment file; each field's description says its unit and meaning."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EnvironmentOptions(Section):
    """What every [environment] section has."""

    id: str  # the name of a module in evo/environments, and after a colon what it is to make
