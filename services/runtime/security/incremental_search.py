"""Findings in a text that grows at its end, of which each rule looks through each part once.

A match that begins far enough before the end of the text does not depend on what comes behind it: it stands, and the
rule goes on behind it. So the last look at a long text takes as long as one at its last part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from services.runtime.security.private_data import Finding, Rule

_AROUND = 256  # characters that a rule looks at behind its match, at most, and that a hint has
_parser: Any = re._parser  # type: ignore[attr-defined]  # nothing else says how wide a match may be


@lru_cache(maxsize=256)
def reach(pattern: re.Pattern[str]) -> int:
    """How many characters from its beginning a match depends on, at most."""
    return int(_parser.parse(pattern.pattern, pattern.flags).getwidth()[1]) + _AROUND


@dataclass(slots=True)
class _Progress:
    """How far a rule has looked, and what it found before. `reach`: see `IncrementalSearch`. `likely`: one of its hints
    is in the text."""

    rule: Rule
    reach: int
    at: int
    likely: bool
    found: list[Finding] = field(default_factory=list)


class IncrementalSearch:
    """Looks from `start` on; text before it is only looked back at. The text may only grow. `most`: the `reach` of all
    rules, where it is known."""

    def __init__(self, rules: Sequence[Rule], start: int, most: int | None = None):
        self._seen = start  # characters that hints were looked for in
        self._progress = [_Progress(rule, most or reach(rule.pattern), start, not rule.hints) for rule in rules]

    def look(self, text: str) -> None:
        """Find what no more text can change."""
        self._look_for_hints(text)
        for each in self._progress:
            limit = len(text) - each.reach
            if not each.likely or limit <= each.at:
                continue
            behind = each.at
            for match, finding in each.rule.matches(text, each.at):
                if match.start() >= limit:
                    break
                behind = match.end()
                each.found += (finding,) if finding else ()
            each.at = max(behind, limit)

    def find(self, text: str) -> list[Finding]:
        """All findings in the text, rule by rule; overlapping findings are not merged."""
        self._look_for_hints(text)
        likely = [each for each in self._progress if each.likely]
        return [finding for each in likely for finding in (*each.found, *each.rule.find(text, each.at))]

    def _look_for_hints(self, text: str) -> None:
        begin = max(0, self._seen - _AROUND)
        lower, self._seen = text[begin:].lower(), len(text)
        for each in self._progress:
            if not each.likely and any(hint in lower for hint in each.rule.hints):
                each.likely, each.at = True, max(each.at, begin - each.reach)
