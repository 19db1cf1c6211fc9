"""The version of the file formats: manifest, champion, resolved configuration (docs/file-formats.md)."""

from __future__ import annotations

from evo.errors import DataError

FORMAT = 2


def check_format(found: object, source: str) -> None:
    """Raise a DataError that says what to do, unless a file has the format of this version."""
    if found == 1:
        raise DataError(
            f"{source}: was written in format 1 by an earlier snake-evo; this version reads format {FORMAT}: "
            "train again, or evaluate it with the version that wrote it"
        )
    if found != FORMAT or type(found) is not int:
        raise DataError(f"{source}: has format {found!r}; this version reads format {FORMAT}")
