"""The file that a user names to be written: refused before anything else is done, where it cannot be."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from evo.errors import ConfigurationError
from evo.files.durable import TEMPORARY, resources


def destination(flag: str, name: str | Path, endings: Collection[str], why: str = "") -> Path:
    """Return the path of the file that `flag` names; `why` says where its endings come from.

    ConfigurationError: it has another ending, its folder does not exist, or something else than a file is there.
    ResourceError: the folder takes no file.
    """
    path, said = Path(name), f"{flag} {str(name) or repr('')}"
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{said}: the file name must end with {' or '.join(endings)}{why}")
    with resources("write", path):
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):  # a pipe would wait for a reader
            raise ConfigurationError(f"{said}: no file can be written there; name one in a folder that exists")
        temporary = path.with_name(path.name + TEMPORARY)
        with suppress(FileExistsError):
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            temporary.unlink()
    return path
