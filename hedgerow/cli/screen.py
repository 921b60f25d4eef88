"""Printing answers: text as it comes, then its account."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from hedgerow import Answer
from hedgerow.cli.account import account_lines
from hedgerow.cli.waterfall import waterfall

# What a terminal would obey instead of show, a model must not be able to say.
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


@contextmanager
def written_as_it_comes() -> Iterator[Callable[[str], None]]:
    """Gives a function that writes text to stdout at once, and ends the last line."""
    out, last = sys.stdout, "\n"
    terminal = out.isatty()

    def write(text: str) -> None:
        nonlocal last
        shown = text.translate(_CONTROL) if terminal else text
        last = shown[-1:] or last
        out.write(shown)
        out.flush()

    try:
        yield write
    finally:
        if last != "\n":
            print(flush=True)


def print_account(console: Console, answer: Answer) -> None:
    """The waterfall and the lines below it."""
    console.print()
    console.print(waterfall(answer, console.width))
    for line in account_lines(answer):
        console.print(line, style="dim", highlight=False, markup=False)
