"""Words while they are spoken: on one line of a terminal, on many lines elsewhere."""

from __future__ import annotations

from io import StringIO

import pytest

from hedgerow_cli.screen import Captions, caption
from hedgerow_cli.terminal import PlainConsole


def console(terminal: bool, width: int = 40) -> PlainConsole:
    return PlainConsole(
        file=StringIO(), force_terminal=terminal, width=width, color_system="standard", legacy_windows=False
    )


def written(screen: PlainConsole) -> str:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


def test_a_terminal_rewrites_one_line() -> None:
    screen = console(terminal=True)
    captions = Captions(screen)
    captions.partial("What is", 1)
    captions.partial("What is", 1)  # nothing new
    captions.partial("What is the", 2)
    captions.final("transcript  What is the?")
    assert written(screen) == (
        "\x1b[1mWhat \x1b[0m\x1b[2mis\x1b[0m"
        "\r\x1b[2K\x1b[1mWhat is \x1b[0m\x1b[2mthe\x1b[0m"
        "\r\x1b[2Ktranscript  What is the?\n"
    )


def test_elsewhere_each_change_is_a_line_and_what_may_change_is_in_brackets() -> None:
    screen = console(terminal=False)
    captions = Captions(screen)
    captions.partial("What is", 1)
    captions.partial("What is", 1)
    captions.partial("What is the", 3)
    captions.clear()
    captions.final("transcript  What is the?")
    assert written(screen) == "partial  What [is]\npartial  What is the\ntranscript  What is the?\n"


def test_a_long_caption_shows_its_newest_words() -> None:
    shown = caption(["one", "two", "three", "four", "five", "six", "seven"], 4, console(terminal=True, width=20)).plain
    assert shown == "… five six seven"
    shown = caption(["one", "two", "three", "four"], 4, console(terminal=True, width=20)).plain
    assert shown == "… two three four "
    assert caption(["x" * 50], 0, console(terminal=True, width=20)).plain == "… "


@pytest.mark.parametrize("terminal", [True, False])
def test_an_unfinished_caption_can_be_cleared(terminal: bool) -> None:
    screen = console(terminal)
    captions = Captions(screen)
    captions.clear()
    assert written(screen) == ""
    captions.partial("What", 0)
    captions.clear()
    captions.clear()
    assert written(screen).endswith("\r\x1b[2K") is terminal


def test_a_terminal_is_not_given_control_codes() -> None:
    screen = console(terminal=True)
    Captions(screen).partial("a\x1b[2Jb", 0)
    Captions(screen).final("c\x1b[2Jd")
    assert "\x1b[2J" not in written(screen)
