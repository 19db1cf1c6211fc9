"""What is launched: a kernel for one game and one action rule, its arguments as words, and the devices that run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CellType, FunctionType, ModuleType
from typing import Any, Protocol

import numba
import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray

from evo.cuda import kernels
from evo.games import contract, hidden_states
from evo.games.contract import CompiledGame
from evo.games.declaration import Declaration
from evo.games.faults import names_in
from evo.rollouts import action_rules

LIBRARIES = ("numpy", "math", "numba")  # whose functions stay as they are
GENERIC: dict[Any, str] = {  # functions that mean those of a game, by whose name
    contract._begin: "begin", contract._step: "step", contract._mask: "mask", contract._metrics: "metrics",
    contract.save: "save", kernels.cell: "cell", kernels.draw: "draw",
}  # fmt: skip


class Retargeter:
    """Makes device functions, each once, of functions of the trainer and of games, in plain Python or for CPUs.

    A copy of a function is made whose global names and closure mean device functions, as `evo.games.compiling` does for
    CPUs. So a game, its random numbers, the step and the action rules are the same source on both.
    """

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


@dataclass(frozen=True)
class Source:
    """A kernel in plain Python, with constants, and functions that it calls in place of generic ones."""

    kernel: Callable[..., None]
    constants: tuple[tuple[str, Any], ...] = ()
    replaced: tuple[tuple[Any, Any], ...] = ()
    option: str = "learner.device"  # what a message names
    title: str = "the learner"
    functions: tuple[Callable[..., Any], ...] = ()  # of an author
    registers: int = 0  # of a thread, at most; 0: no limit

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return the values on which the program depends, besides the types of arguments."""
        return (*self.constants, *(function.__name__ for _, function in self.replaced))

    def of_device(self, compiled: Callable[[Any], Any], twins: Mapping[Any, Any]) -> Callable[..., None]:
        """Return the kernel with device functions, which `compiled` makes; `twins` replace functions."""
        made = Retargeter(compiled, twins, dict(self.constants))
        for generic, function in self.replaced:
            made.replace(generic, function)
        kernel: Callable[..., None] = made.kernel(self.kernel)
        return kernel


def source_of_game(
    kernel: Callable[..., None], game: CompiledGame, rule: int | None, registers: int, remembers: bool
) -> Source:
    """Return a kernel for a game and one of RULES; `remembers`: the network has memory."""
    state = game.make_state(1)
    known, kind = contract.functions_of(state), types.float64 if game.continuous else types.none
    memory = types.float32[:, ::1] if remembers else types.none
    replaced = {generic: known[name] for generic, name in GENERIC.items()} | {
        hidden_states.remember: hidden_states._remember(memory, None, memory, None),
        hidden_states.forget: hidden_states._forget(memory, None),
        action_rules.decide: action_rules._decide(*[None] * 8, kind),
        action_rules.write_action: action_rules._write_action(None, None, None, kind),
    }
    declared = [part for part in game.made_by if isinstance(part, Declaration)]
    return Source(
        kernel,
        constants=(("SHAPE", game.shape), ("MASKED", game.masked or None), ("RULE", rule)),
        replaced=tuple(replaced.items()),
        option="workers.kind",
        title=f"game {type(state.state).__module__}",
        functions=tuple(function for one in declared for function in one.functions.values()),
        registers=registers,
    )


def signature_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments; arrays of files that cannot be written to count as others."""
    kinds = map(numba.typeof, arguments)
    return tuple(kind.copy(readonly=False) if isinstance(kind, types.Array) else kind for kind in kinds)


def arrays_in(arguments: Sequence[Any]) -> Iterator[NDArray[Any]]:
    """Yield all arrays, also those of tuples."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from arrays_in(argument)
        elif isinstance(argument, np.ndarray):
            yield argument


def words_of(argument: Any, address: Callable[[Any], int]) -> Iterator[int | float]:
    """Yield the parameters of a kernel that Numba makes of an argument: 64-bit whole numbers, or float64.

    `address` returns where the device has an array or a record.
    """
    if isinstance(argument, np.ndarray):
        yield from (0, 0, argument.size, argument.itemsize, address(argument), *argument.shape, *argument.strides)
    elif isinstance(argument, np.void):  # a record is passed by its address
        yield address(argument)
    elif isinstance(argument, tuple):
        for part in argument:
            yield from words_of(part, address)
    else:
        yield argument if isinstance(argument, float) else int(argument or 0)  # None is a word too


class Device(Protocol):
    """Runs kernels: a GPU, or what stands for one in tests."""

    name: str
    golden: tuple[int, int]  # candidates and episodes that are compared with the CPU at start

    def program(self, source: Source, arguments: Sequence[Any]) -> Any:
        """Return a kernel, compiled for such arguments; ConfigurationError where it cannot be, or not exactly."""

    def blocks(self, program: Any, threads: int) -> int:
        """Return how many blocks of a program the device runs at once."""

    def keep(self, array: NDArray[Any], copy: bool = True) -> None:
        """Copy an array to the device until it is dropped; launches neither copy it again nor return it.

        Without `copy` there is memory for it, of any content.
        """

    def drop(self, array: NDArray[Any]) -> None:
        """Free the memory of an array, if it is kept."""

    def send(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept to the device again."""

    def receive(self, array: NDArray[Any]) -> None:
        """Copy an array that is kept back from the device, when all launches are done."""

    def abandon(self) -> None:
        """End every wait for launches, also in other threads; the device cannot be used any more."""

    def prepared(self, program: Any, arguments: Sequence[Any], blocks: int, threads: int) -> Callable[[], None]:
        """Return a launch whose arrays are all kept, which copies nothing and waits for nothing."""
        return partial(self.run, program, arguments, blocks, threads, ())

    def run(
        self,
        program: Any,
        arguments: Sequence[Any],
        blocks: int,
        threads: int,
        results: Sequence[NDArray[Any]],
        whole: bool = False,
    ) -> None:
        """Run a program on its arguments, and copy `results`, some of them, back; without any it waits for nothing.

        Where `whole` is set, results are not copied to the device: what a program leaves in them is not read.
        DeviceMemoryError where the device's memory does not suffice, DeviceLostError where it has failed.
        """
