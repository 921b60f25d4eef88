"""Secrets and personal data in a text: where they are, and the text without them.

Rules of patterns and check digits (`personal_data.py`, `credentials.py`), made so that three things hold:

- linear: every repetition is bounded or possessive, so no text makes much work, a few µs for a short one;
- sentences: no rule but that of private keys reaches over the end of a sentence or line, as `hedgerow._sentences` has
  them, so that a text may be looked through sentence by sentence, as it is written;
- stable: what stands in the place of a finding is none itself, and nothing else changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["secret", "personal", "denied"]
Accept = Callable[[re.Match[str]], bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule, with its position in characters. `label` replaces it in the text; `prefix_start`: the
    position of the words that introduce it, as in `password: …`."""

    rule: str
    kind: Kind
    label: str
    start: int
    end: int
    prefix_start: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A stable `name`, and what it finds: a pattern whose group `it`, or all of it, is the thing itself. `hints`: where
    none of them is in a text in lower case, nor is the pattern. `accept` checks what a pattern cannot."""

    name: str
    kind: Kind
    label: str
    pattern: re.Pattern[str]
    hints: tuple[str, ...] = ()
    accept: Accept | None = None

    def find(self, text: str, start: int = 0) -> Iterator[Finding]:
        """Findings from `start` on; text before it is only looked back at."""
        return (finding for _, finding in self.matches(text, start) if finding)

    def matches(self, text: str, start: int) -> Iterator[tuple[re.Match[str], Finding | None]]:
        """The findings with their matches; None for a match that is not accepted."""
        group = "it" if "it" in self.pattern.groupindex else 0
        for found in self.pattern.finditer(text, start):
            if self.accept is None or self.accept(found):
                span = found.start(group), found.end(group)
                yield found, Finding(self.name, self.kind, self.label, *span, found.start())
            else:
                yield found, None


def find(text: str, rules: Iterable[Rule], start: int = 0) -> list[Finding]:
    """The findings of all rules from `start` on, in order; overlapping ones as one, under the name of the first."""
    lower = text.lower()
    likely = [rule for rule in rules if not rule.hints or any(hint in lower for hint in rule.hints)]
    return merged(each for rule in likely for each in rule.find(text, start))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in order; overlapping ones are merged."""
    together: list[Finding] = []
    for each in sorted(findings, key=lambda each: (each.start, -each.end)):
        if together and each.start < together[-1].end:
            last = together.pop()
            end, prefix_start = max(last.end, each.end), min(last.prefix_start, each.prefix_start)
            each = Finding(last.rule, last.kind, last.label, last.start, end, prefix_start)
        together.append(each)
    return together


@dataclass(slots=True)
class Names:
    """The replacement of each finding, such as `[email 1]`; equal findings have equal names."""

    _known: dict[tuple[str, str], str] = field(default_factory=dict)
    _count: dict[str, int] = field(default_factory=dict)

    def of(self, finding: Finding, what: str) -> str:
        key = finding.label, what
        if key not in self._known:
            self._count[finding.label] = self._count.get(finding.label, 0) + 1
            self._known[key] = f"[{finding.label} {self._count[finding.label]}]"
        return self._known[key]


def masked(text: str, findings: Sequence[Finding], names: Names, start: int = 0, end: int | None = None) -> str:
    """`text` from `start` to `end` with a name in the place of each finding, of which none reaches over either."""
    kept, at = list[str](), start
    for finding in findings:
        kept += (text[at : finding.start], names.of(finding, text[finding.start : finding.end]))
        at = finding.end
    return "".join((*kept, text[at:end]))
