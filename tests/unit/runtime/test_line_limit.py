"""One line a minute of each kind."""

from __future__ import annotations

from services.runtime.line_limit import EVERY_S, LineLimit
from tests.clock import PausedClock


def test_a_kind_has_one_line_a_minute_which_says_how_many_were_left_out() -> None:
    clock = PausedClock()
    lines = LineLimit(clock)
    assert [lines.take("a"), lines.take("b"), lines.take("a"), lines.take("a")] == [0, 0, None, None]
    clock.advance(EVERY_S)
    assert [lines.take("a"), lines.take("a"), lines.take("b")] == [2, None, 0]
