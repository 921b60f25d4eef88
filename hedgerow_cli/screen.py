"""The terminal: an answer as it comes, then its report; captions of speech, while it is spoken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from hedgerow import Answer
from hedgerow_cli.report import report_lines
from hedgerow_cli.terminal import PlainConsole, harmless
from hedgerow_cli.waterfall import waterfall

_BACK = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class ScreenWriter:
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
def written_as_it_comes() -> Iterator[ScreenWriter]:
    """Gives what writes text to stdout at once, and ends the last line."""
    write = ScreenWriter()
    try:
        yield write
    finally:
        write.end_line()


def print_report(console: PlainConsole, answer: Answer) -> None:
    """The waterfall and the lines below it."""
    console.print()
    console.print(waterfall(answer, console.width))
    for line in report_lines(answer):
        console.print(line, style="dim")


class Captions:
    """A line of words while they are spoken: rewritten in a terminal, a line for each change elsewhere.

    Call `clear` before printing something else.
    """

    def __init__(self, console: PlainConsole):
        self._console = console
        self._line: Text | None = None  # what the screen shows, unfinished

    def partial(self, text: str, confirmed: int) -> None:
        """Show the words so far; the first `confirmed` words stay."""
        line = caption(text.split(), confirmed, self._console)
        if line == self._line:
            return
        self.clear()
        self._line = line
        self._console.print(line, end="" if self._console.is_terminal else "\n", soft_wrap=True)

    def final(self, line: str, style: str = "") -> None:
        """Replace the partial line with the whole text."""
        self.clear()
        self._console.print(Text(line, style), soft_wrap=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._line is not None and self._console.is_terminal:
            self._console.control(_BACK)
        self._line = None


def caption(words: list[str], confirmed: int, console: PlainConsole) -> Text:
    """Confirmed words bright and the others dim, or in brackets without a terminal; the newest, where not all fit."""
    if not console.is_terminal:
        pending = " ".join(words[confirmed:])
        return Text(" ".join(["partial", "", *words[:confirmed], *([f"[{pending}]"] if pending else [])]))
    words = [harmless(word) for word in words]
    first, room = len(words), console.width - 3
    while first and (room := room - cell_len(words[first - 1]) - 1) >= 0:
        first -= 1
    sure = words[first : max(first, confirmed)]
    return Text.assemble(
        ("… " if first else "", "dim"),
        (" ".join([*sure, ""]) if sure else "", "bold"),
        (" ".join(words[max(first, confirmed) :]), "dim"),
    )
