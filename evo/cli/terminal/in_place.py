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

ERASE_LINE = Segment("\x1b[K", None, [(ControlType.ERASE_IN_LINE, 0)])  # right of the cursor
ERASE_BELOW = Segment("\x1b[J", None, [(ControlType.CLEAR,)])


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
            return [top, _Overwriting(self._live_render)]


class _Overwriting:
    """Draws lines over others: erases what is right of each, and what is below the last one."""

    def __init__(self, render: LiveRender) -> None:
        self._render = render

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        across = 0
        for segment in console.render(self._render, options):
            if segment.text == "\n":
                if across < options.max_width:  # else the cursor may stand on the last cell
                    yield ERASE_LINE
                across = 0
            else:
                across += segment.cell_length
            yield segment
        if across < options.max_width:
            yield ERASE_BELOW
