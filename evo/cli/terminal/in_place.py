"""A live display that is written over itself, so that no moment shows a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable
    from rich.live_render import LiveRender

ERASE_TO_END_OF_LINE = (ControlType.ERASE_IN_LINE, 0)


class LiveInPlace(Live):
    """A Rich `Live` that does not erase its lines before it draws them anew, which would flicker."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what a refresh writes; text that is printed above the display moves it, as in Rich."""
        with self._lock:
            height = self._live_render.last_render_height
            if (
                not height
                or not self.console.is_interactive
                or any(not isinstance(one, Control) for one in renderables)
            ):
                return super().process_renderables(renderables)
            self._live_render.vertical_overflow = self.vertical_overflow
            top = Control(ControlType.CARRIAGE_RETURN, *[(ControlType.CURSOR_UP, 1)] * (height - 1))
            return [top, _Overwriting(self._live_render, height)]


class _Overwriting:
    """Draws lines over `before` others: erases what is right of each, and the lines that are no longer needed."""

    def __init__(self, render: LiveRender, before: int) -> None:
        self._render, self._before = render, before

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        erase = Control(ERASE_TO_END_OF_LINE).segment
        for segment in console.render(self._render, options):
            if segment.text == "\n":
                yield erase
            yield segment
        yield erase
        left = max(self._before - self._render.last_render_height, 0)
        for _ in range(left):
            yield Segment.line()
            yield erase
        yield Control(*[(ControlType.CURSOR_UP, 1)] * left).segment
