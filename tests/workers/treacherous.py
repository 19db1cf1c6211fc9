"""A plug-in environment, walks on a line, that harms the process that plays it as environment variables say.

A file `FAULT-SEED-STEP` in the folder TREACHERY is a fault that happens once, at that step of that episode, to whoever
plays it first. A walk that is listed in DEADLY ends whoever walks it, every time; "all" lists those after the check of
seeds. Every walk is appended to WALKS. With SEATS=COUNT:FOLDER so many processes have room on a device, until they end.
Every step takes PACE seconds.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pydantic import Field

from evo import environment
from evo.errors import DeviceMemoryError
from evo.options import EnvironmentOptions
from evo.rollouts.gymnasium_episodes import PROBED

plugs_into = "environments"

LENGTH = 12


class Options(EnvironmentOptions):
    """The [environment] section."""

    id: str = Field("treacherous", description="this one")


class Walk(gymnasium.Env[np.ndarray, int]):
    """Left or right on a line; every step right pays, by where it is made."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._name, self._phase, self._place, self._steps = f"{seed or 0:016x}:", (seed or 0) % 1009, 0, 0
        _sit_down()
        self._betray()
        return self._seen(), {}

    def step(self, action: int) -> Any:
        self._place += 1 if action else -1
        self._steps += 1
        time.sleep(float(os.environ.get("PACE", "0")))
        self._name += str(int(action))
        self._betray()
        if self._steps == LENGTH:
            self._arrive()
        reward = float(((self._place * 7 + self._phase) % 5) - 1) * (1 if action else -1)
        return self._seen(), reward, self._steps == LENGTH, False, {}

    def _betray(self) -> None:
        folder = os.environ.get("TREACHERY")
        if folder is None:
            return
        for path in Path(folder).glob(f"*-{self._name[:16]}-{self._steps}"):
            try:
                path.unlink()  # one process alone succeeds
            except FileNotFoundError:
                continue
            EVERY[path.name.partition("-")[0]]()

    def _arrive(self) -> None:
        if walks := os.environ.get("WALKS"):
            with open(walks, "a") as file:
                file.write(self._name + "\n")
        deadly = os.environ.get("DEADLY", "")
        if self._name in deadly.split() or (deadly == "all" and int(self._name[:16], 16) > PROBED[-1]):
            _segv()

    def _seen(self) -> np.ndarray:
        signs = [((self._phase + 31 * self._place) * (self._steps + i) % 101 - 50) / 50 for i in (3, 5, 8)]
        return np.array(signs, np.float32)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _spin() -> None:
    while True:
        pass


def _exit() -> None:
    os._exit(0)


def _segv() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def _memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    hoard = []
    while True:
        hoard.append(np.ones(1 << 20))


def _device() -> None:
    raise DeviceMemoryError("out of memory on the Stand-in")


def _sit_down() -> None:
    """Keep a part of the device's memory for as long as this process lives, if there is one left."""
    if "SEATS" not in os.environ or _seats:
        return
    count, _, folder = os.environ["SEATS"].partition(":")
    for number in range(int(count)):
        seat = Path(folder) / str(number)
        with suppress(OSError, ValueError):
            if not Path(f"/proc/{seat.readlink()}").exists():
                seat.unlink()
        with suppress(FileExistsError):
            seat.symlink_to(str(os.getpid()))
            _seats.append(seat)
            return
    _device()


_seats: list[Path] = []  # of this process
HARM = {"kill": _kill, "stop": _stop, "spin": _spin, "exit": _exit, "segv": _segv, "memory": _memory}
EVERY = {**HARM, "device": _device}


class Environment(environment.Environment):
    """The walk."""

    shape: tuple[int, ...] = (3,)
    actions: int = 2

    def env(self) -> Walk:
        return Walk()


def make(options: Options) -> Environment:
    return Environment()
