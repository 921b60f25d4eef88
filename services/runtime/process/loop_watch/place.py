"""Where a thread is: the function that it runs, and the function of ours that called that one."""

from __future__ import annotations

import asyncio
import selectors
from dataclasses import dataclass
from types import FrameType

OURS = ("services", "hedgerow")
# The innermost function of a thread whose loop waits for events: uvloop's and asyncio's.
_WAITING = (asyncio.Runner.run.__code__, selectors.DefaultSelector.select.__code__)
_OUTERMOST = asyncio.Runner.run.__code__  # what called it started the process


@dataclass(frozen=True, slots=True)
class CodePlace:
    """`function`: of ours, or the innermost one where none of ours is called. `within`: the innermost function, where
    that is another. Names are `module.Class.method`; they hold no values."""

    function: str
    line: int = 0
    within: str = ""

    def __str__(self) -> str:
        at = f"{self.function}:{self.line}" if self.line else self.function
        return f"{at} (in {self.within})" if self.within else at


IN_C = CodePlace("(C code)")  # called by the loop itself, so no Python function shows


def place(frame: FrameType | None) -> CodePlace | None:
    """The code place of `frame`, the innermost one of a loop's thread; None if the loop waits for events."""
    if frame is None or frame.f_code in _WAITING:
        return None
    innermost, ours = frame, _ours(frame)
    named = ours or innermost
    return CodePlace(_name(named), named.f_lineno, _name(innermost) if named is not innermost else "")


def _ours(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code is not _OUTERMOST:
        if _module(frame).partition(".")[0] in OURS:
            return frame
        frame = frame.f_back
    return None


def _name(frame: FrameType) -> str:
    return f"{_module(frame)}.{frame.f_code.co_qualname}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))
