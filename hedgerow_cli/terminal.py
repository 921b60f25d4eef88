"""Text on a terminal, which obeys control characters: models, services and files must not be able to send it any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """The text without what a terminal would obey."""
    return text.translate(_CONTROL)


class PlainConsole(Console):
    """Prints text as it is: without markup and highlights, and without what a terminal would obey."""

    def __init__(self, **options: Any):
        super().__init__(highlight=False, markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, without control characters in their text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)
