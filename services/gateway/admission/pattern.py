"""How much work a regular expression may make, told from its text alone, in one pass.

An automaton has about as many states as the pattern has characters once its repetitions are written out. That number
is what is counted: `(a{9}b){9}` is 90. The dialect does not matter for it, and whether the pattern is one is for the
engine to say. What a star repeats is counted once.
"""

from __future__ import annotations

import re

_REPEATED = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*+\]", re.DOTALL)
MOST = 10**9  # more than that is not counted


def size(pattern: str) -> int:
    """The characters of `pattern`, its repetitions written out."""
    outer: list[int] = []  # what each open group's surroundings have
    total = last = at = 0  # `last`: of the total, what a count that follows would repeat
    while at < len(pattern):
        character, step, counts = pattern[at], 1, None
        if character == "(":
            outer.append(total)
            total = last = 0
        elif character == ")":
            last = max(total, 1)
            total = last + (outer.pop() if outer else 0)
        elif character == "{" and (counts := _REPEATED.match(pattern, at)):
            step = counts.end() - at
            more = min(last * (_most(counts) - 1), MOST)
            total, last = total + more, last + more
        elif character not in "*+?":
            step = _length(pattern, at)
            total, last = total + 1, 1
        at += step
    return min(total + sum(outer), MOST)


def _length(pattern: str, at: int) -> int:
    """Of the character, escape or class that begins there."""
    if pattern[at] == "\\":
        return 2
    if pattern[at] != "[":
        return 1
    closed = _CLASS.match(pattern, at)
    return (closed.end() if closed else len(pattern)) - at


def _most(counts: re.Match[str]) -> int:
    """The larger of a repetition's counts, at least 1."""
    given = [count for count in counts.groups() if count]
    return max((int(count) if len(count) < len(str(MOST)) else MOST for count in given), default=1) or 1
