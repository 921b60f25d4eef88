"""Words while they are spoken: a line that is rewritten in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from hedgerow_cli.screen import harmless

_BACK = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


class Captions:
    """The line with the words so far. Call `clear` before printing something else."""

    def __init__(self, console: Console):
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
        self._console.print(Text(harmless(line), style), soft_wrap=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._line is not None and self._console.is_terminal:
            self._console.control(_BACK)
        self._line = None


def caption(words: list[str], confirmed: int, console: Console) -> Text:
    """Confirmed words bright and the others dim, or in brackets without a terminal; the newest, where not all fit."""
    if not console.is_terminal:
        pending = " ".join(words[confirmed:])
        return Text(" ".join(["hears", "", *words[:confirmed], *([f"[{pending}]"] if pending else [])]))
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
