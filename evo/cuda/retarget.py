"""Device functions from functions of the trainer and of games: plain Python, or compiled for CPUs by Numba.

A copy of a function is made whose global names and closure mean device functions, as `evo.games.compiling` does for
CPUs. So a game, its random numbers, the step and the action rules are the same source on both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any

from numba.core.dispatcher import Dispatcher

from evo.games.faults import names_in

LIBRARIES = ("numpy", "math", "numba")


class Retargeter:
    """Makes device functions, each of them once."""

    def __init__(
        self, compiled: Callable[[Any], Any], special: Mapping[Any, Any], constants: Mapping[str, Any]
    ) -> None:
        """`compiled` makes a device function of plain Python; `special` are functions that are replaced.

        `constants` are values of global names.
        """
        self._compiled, self._constants, self._done = compiled, constants, dict(special)

    def device(self, function: Callable[..., Any]) -> Any:
        """Return a function, and all that it calls, as a device function."""
        if function not in self._done:
            plain = function.py_func if isinstance(function, Dispatcher) else function
            copy = self._copy(plain)
            self._done[function] = self._done[plain] = self._compiled(copy)
            self._change(copy)  # afterwards, since a name may be the function's own
        return self._done[function]

    def replace(self, generic: Any, function: Callable[..., Any]) -> None:
        """Have a function called in place of a generic one."""
        self._done[generic] = self.device(function)

    def kernel(self, plain: Callable[..., Any]) -> Any:
        """Return a copy of plain Python that calls device functions."""
        copy = self._copy(plain)
        self._change(copy)
        return copy

    def _copy(self, plain: Any) -> Any:
        cells = tuple(CellType(self._value(cell.cell_contents)) for cell in plain.__closure__ or ())
        copy = FunctionType(plain.__code__, dict(plain.__globals__), plain.__name__, plain.__defaults__, cells or None)
        copy.__module__, copy.__kwdefaults__ = plain.__module__, plain.__kwdefaults__
        return copy

    def _change(self, copy: Any) -> None:
        """Have the global names of a copy mean device functions."""
        names, known = names_in(copy.__code__), copy.__globals__
        for name in names & known.keys():
            value = known[name]
            known[name] = self._module(value, names) if isinstance(value, ModuleType) else self._value(value)
        known.update({name: value for name, value in self._constants.items() if name in names})

    def _module(self, module: ModuleType, names: set[str]) -> ModuleType:
        """Return a module whose functions of these names are device functions; libraries stay as they are."""
        if module.__name__.partition(".")[0] in LIBRARIES:
            return module
        found = {name: vars(module)[name] for name in names & vars(module).keys()}
        copy = ModuleType(module.__name__)
        vars(copy).update({**vars(module), **{name: self._value(value) for name, value in found.items()}})
        return copy

    def _value(self, value: Any) -> Any:
        try:
            if value in self._done:
                return self._done[value]
        except (TypeError, ValueError):  # no key, such as an array
            return value
        return self.device(value) if isinstance(value, FunctionType | Dispatcher) else value
