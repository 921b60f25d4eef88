"""Things that the guard looks for, and its actions."""

from __future__ import annotations

from typing import Literal, TypeAlias

GuardedThing: TypeAlias = Literal["injection", "secrets", "personal", "answer_secrets", "answer_personal"]
GuardAction: TypeAlias = Literal["mask", "refuse"]
