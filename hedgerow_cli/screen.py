"""Printing answers: text as it comes, then its account."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from hedgerow import Answer
from hedgerow_cli.account import account_lines
from hedgerow_cli.waterfall import waterfall

# A model must not be able to write characters that a terminal obeys.
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """The text without what a terminal would obey."""
    return text.translate(_CONTROL)


class Writer:
    """Writes text to stdout at once, and knows whether its line has ended."""

    def __init__(self) -> None:
        self._out, self._last = sys.stdout, "\n"
        self._terminal = self._out.isatty()

    def __call__(self, text: str) -> None:
        shown = harmless(text) if self._terminal else text
        self._last = shown[-1:] or self._last
        self._out.write(shown)
        self._out.flush()

    @property
    def replaceable(self) -> bool:
        """Whether a terminal shows the text, where a reader sees that one text replaces another."""
        return self._terminal

    def instead(self, text: str) -> None:
        """Write a text that replaces all that was written."""
        self.end_line()
        self("(instead)\n")
        self(text)

    def end_line(self) -> None:
        """Begin a new line, unless one has just begun."""
        if self._last != "\n":
            self("\n")


@contextmanager
def written_as_it_comes() -> Iterator[Writer]:
    """Gives what writes text to stdout at once, and ends the last line."""
    write = Writer()
    try:
        yield write
    finally:
        write.end_line()


def print_account(console: Console, answer: Answer) -> None:
    """The waterfall and the lines below it."""
    console.print()
    console.print(waterfall(answer, console.width))
    for line in account_lines(answer):
        console.print(harmless(line), style="dim", highlight=False, markup=False)
