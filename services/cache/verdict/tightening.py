"""How tight an entry becomes that gave a wrong answer: the least score that a question alike must have from then on."""

from __future__ import annotations

NEVER = 2.0  # above every score: no hit of what is merely alike
_ABOVE = 0.001  # the index keeps 16-bit floats, so that the same two questions may score so much more there


def above(score: float) -> float:
    """Just above a score that was wrong, so that it is not reached again."""
    return score + _ABOVE
