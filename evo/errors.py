"""What can go wrong through no bug of ours, and the exit code that each kind has."""

from __future__ import annotations


class EvoError(Exception):
    """A failure that has a clear line for the user; `exit_code` is what the process ends with."""

    exit_code = 1


class ConfigurationError(EvoError):
    """A mistake in the experiment file, on the command line, or a missing extra."""

    exit_code = 2


class DataError(EvoError):
    """A file that is corrupt, foreign, or of another shape than expected."""

    exit_code = 3


class LockedError(EvoError):
    """Another process holds the run directory."""

    exit_code = 4


class ResourceError(EvoError):
    """The machine lacks something: disk, memory, a device, a worker that stays alive."""

    exit_code = 5


class DeviceError(ResourceError):
    """A process does not see exactly the device that it was pinned to."""


class DeviceMemoryError(DeviceError):
    """A device has too little memory left for what is to be computed on it."""


class HeadLostError(ResourceError):
    """The head of a cluster is gone, and with it all that was being played."""


class PoisonError(ResourceError):
    """A task ends every worker that plays it."""

    def __init__(self, message: str, task: int = 0, first: int = 0, count: int = 1, why: str = "") -> None:
        super().__init__(message)
        self.task = task  # which of those that were to be played
        self.first, self.count = first, count  # its candidates that are to blame
        self.why = why  # what became of the last worker, as "was killed by SIGSEGV"
