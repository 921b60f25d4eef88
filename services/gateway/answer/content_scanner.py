"""A look through texts for what a guard wants found, in steps: between two of them others have their turn.

For what is asked (`stages/guard.py`), for what tools say (`results.py`), and for answers that the cache is to keep
(`stages/cache.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Sequence

from services.gateway.guard import injection
from services.gateway.guard.checks import Checks
from services.gateway.guard.screen import Screen
from services.runtime.deadline import Deadline
from services.runtime.security.private_data import Finding, Names, Rule

AT_ONCE = 256  # characters that are looked through before other work of the event loop has its turn: 0.2 ms


class Late(Exception):
    """The time is over."""


class Refused(Exception):
    """A text holds what is refused: the name of the rule, and what it is about, for people."""

    def __init__(self, rule: str, what: str):
        super().__init__(rule)
        self.rule, self.what = rule, what


class ContentScanner:
    """`names` stand in the place of what is hidden; `found` counts that, by its rules. Each step raises `Late` when the
    time is over."""

    def __init__(self, checks: Checks, names: Names, deadline: Deadline):
        self._checks, self._names, self._deadline = checks, names, deadline
        self.found = Counter[str]()

    def without_private(self, text: str) -> Generator[None, None, str]:
        """`text` with names in the place of secrets and personal data. Raises `Refused`."""
        screen, shown = Screen(self._checks.hides, names=self._names), list[str]()
        for at in range(0, len(text), AT_ONCE):
            if len(text) > AT_ONCE:
                self._in_time()
            released = screen.feed(text[at : at + AT_ONCE])
            self._note(released.findings)
            shown.append(released.text)
            yield
        released = screen.close()
        self._note(released.findings)
        return "".join((*shown, released.text))

    def for_injections(self, texts: Iterable[str]) -> Generator[None, None, tuple[str, float]]:
        """Whether anybody wants to be obeyed: the rule, empty where there is none, and the classifier's word."""
        least = self._checks.settings.injection_score
        for piece in (piece for text in texts for piece in injection.pieces(text)):
            self._in_time()
            rule, score = injection.by_pattern(piece), 0.0
            if not rule and (score := injection.probability(piece)) >= least:
                rule = injection.CLASSIFIER
            if rule:
                return rule, score
            yield
        return "", 0.0

    def _note(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.kind in self._checks.refuses:
                raise Refused(finding.rule, f"a {finding.label} ({finding.rule})")
            self.found[finding.rule] += 1

    def _in_time(self) -> None:
        if self._deadline.remaining() <= 0:
            raise Late


async def holds(text: str, rules: Sequence[Rule]) -> bool:
    """Whether any of the rules finds something in a text. The event loop runs between the parts of a long one."""
    screen = Screen(rules)
    for at in range(0, len(text), AT_ONCE):
        if screen.feed(text[at : at + AT_ONCE]).findings:
            return True
        if len(text) > AT_ONCE:
            await asyncio.sleep(0)
    return bool(screen.close().findings)


def told(rule: str, score: float) -> str:
    """An injection, for people."""
    return f"injection, {rule}{f' {score:.2f}' if score else ''}"
