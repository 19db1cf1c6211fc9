"""Reads a report as a program would: its text, its data, and whether its markup is whole."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
LARGEST = 1_500_000


class Page(HTMLParser):
    """A report that was parsed; AssertionError where an element is left open, or something is loaded from elsewhere."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        data = path.read_bytes()
        assert len(data) <= LARGEST
        self.elements: list[str] = []
        self.scripts: list[str] = []
        self.text = self.sentence = self.again = self.policy = ""
        self._open: list[str] = []
        self.feed(data.decode())
        assert self._open == []
        (raw,) = re.findall(rb'<script type="application/json" id="data">(.*?)</script>', data)
        self.data: dict[str, Any] = json.loads(raw)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        given = dict(attrs)
        assert not given.keys() & {"src", "href", "onclick", "onload", "style"}, tag
        if given.get("http-equiv"):
            self.policy = str(given["content"])
        if tag not in VOID:
            self._open.append("verdict" if given.get("class") == "verdict" else tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() in (tag, "verdict")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            self.scripts.append(data)
        elif inside not in ("style", "title"):
            self.text += data
            self.sentence += data if inside == "verdict" else ""
            self.again += data if inside == "pre" else ""


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def bodies(board: dict[str, Any]) -> list[tuple[list[int], int]]:
    """Return the cells of the body, head first, and the fruit at every step of a packed board."""
    steps = np.frombuffer(unpacked(board["data"]), "<i2").reshape(-1, 4)
    path, found = list(board["start"]), []
    for i, (head, fruit, length, _) in enumerate(steps.tolist()):
        if i and head != steps[i - 1, 0]:
            path.append(head)
        found.append((path[-length:][::-1], fruit))
    return found


def pictures(packed: dict[str, Any]) -> np.ndarray:
    """Return the pixels of packed pictures.  # [T, H, W, 3]"""
    flat = np.frombuffer(unpacked(packed["data"]), np.uint8)
    indices = np.bitwise_xor.accumulate(flat.reshape(-1, packed["height"], packed["width"]), axis=0)
    palette = np.array([list(bytes.fromhex(colour)) for colour in packed["palette"]], np.uint8)
    return palette[indices]
