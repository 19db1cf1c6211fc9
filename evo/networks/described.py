"""A hidden layer as one line of text, as `policy.layers` lists them: a name, whole numbers, and the padding."""

from __future__ import annotations

from dataclasses import dataclass

from evo.errors import did_you_mean

PADDINGS = ("same", "valid")
SIDE = 63  # cells along a kernel or a window, and between two of them, at most


@dataclass(frozen=True)
class Form:
    """What follows the name of a layer: numbers with their largest values, of which the last may be left out."""

    numbers: tuple[tuple[str, int], ...] = ()
    needed: int = 0
    padded: bool = False
    least: int = 1

    def described(self, kind: str) -> str:
        """Return the form as in "conv FILTERS KERNEL [STRIDE] [same | valid]"."""
        names = [name.upper() if i < self.needed else f"[{name.upper()}]" for i, (name, _) in enumerate(self.numbers)]
        return " ".join([kind, *names, *(["[same | valid]"] if self.padded else [])])


WINDOW = Form((("size", SIDE), ("stride", SIDE)), needed=1, padded=True)
FORMS = {
    "one_hot": Form((("codes", 256),), least=2),
    "conv": Form((("filters", 4096), ("kernel", SIDE), ("stride", SIDE)), needed=2, padded=True),
    "dense": Form((("units", 65536),), needed=1),
    "max_pool": WINDOW,
    "average_pool": WINDOW,
    "tree": Form((("depth", 10),), needed=1),
    "norm": Form(),
    "relu": Form(),
    "tanh": Form(),
}
WINDOWED = ("conv", "max_pool", "average_pool")  # which need rows and columns


@dataclass(frozen=True)
class Described:
    """One line: a convolution without a stride has stride 1, a pooling window steps by its size."""

    kind: str
    numbers: tuple[int, ...] = ()
    padding: str = ""  # empty: that of the section

    def __str__(self) -> str:
        return " ".join([self.kind, *map(str, self.numbers), *([self.padding] if self.padding else [])])


def parse(text: str) -> Described:
    """Return the layer that a line describes; ValueError with the line and what is wrong with it."""
    kind, *words = text.split() or [""]
    form = FORMS.get(kind)
    if form is None:
        close = did_you_mean(kind, FORMS) or f"; there are {', '.join(FORMS)}"
        raise ValueError(f'"{text[:60]}" is not known{close}')
    padding = ""
    if form.padded and words and not _is_number(words[-1]):
        padding = words.pop()
        if padding not in PADDINGS:
            raise ValueError(f'"{text[:60]}": the padding is same or valid{did_you_mean(padding, PADDINGS)}')
    if not form.needed <= len(words) <= len(form.numbers):
        raise ValueError(f'"{text[:60]}" is not of the form "{form.described(kind)}"')
    numbers = []
    for word, (name, most) in zip(words, form.numbers, strict=False):
        if not _is_number(word) or not form.least <= int(word) <= most:
            raise ValueError(f'"{text[:60]}": {name} must be a whole number from {form.least} to {most:,}')
        numbers.append(int(word))
    if form.padded and len(numbers) < len(form.numbers):
        numbers.append(1 if kind == "conv" else numbers[0])
    return Described(kind, tuple(numbers), padding)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10


def checked(text: str) -> str:
    """Return the text; ValueError where it describes no layer."""
    parse(text)
    return text


def order_mistake(layers: list[Described]) -> str:
    """Return what is wrong with the order of layers, or nothing."""
    dense = False
    for number, layer in enumerate(layers, 1):
        if layer.kind == "one_hot" and number > 1:
            return f'"{layer}" is layer {number}, but only the observation has codes; it must be the first'
        if layer.kind in WINDOWED and dense:
            return f'"{layer}" is layer {number}, behind a dense layer or a tree, whose output has no rows and columns'
        dense = dense or layer.kind in ("dense", "tree")
    return ""
