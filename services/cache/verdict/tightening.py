"""How tight an entry becomes that gave a wrong answer: the least score that a question alike must have from then on."""

from __future__ import annotations

NEVER = 2.0  # above every score: no hit of what is merely alike
