"""A text that is filtered while it is written: whole sentences leave, with names in the place of findings.

The released text is the same as for the complete text, wherever it was cut into chunks. Only two rules reach beyond the
end of a sentence: the text of a private key is held until its end, and after a sentence as much is held as a denied
phrase or pattern may span. Where no sentence ends for long, text leaves at a blank.

Where something else follows, such as a call between two texts, all of the text leaves before it. Of a finding that only
the next text completes, the rest is hidden.

A long text that is held is searched again only once an eighth more of it is there, so that all searches together take
time in proportion to its length, whatever its chunks. Where neither a sentence ends nor a blank comes, rules and
phrases continue where they stopped, so that the last search is no longer than the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from hedgerow._sentences import SentenceSplitter
from services.gateway.guard import injection
from services.gateway.guard.checks import Checks
from services.gateway.guard.denied import Denied
from services.runtime.aside import give_way
from services.runtime.deadline import Deadline
from services.runtime.security.incremental_search import IncrementalSearch
from services.runtime.security.private_data import Finding, Names, Rule, find, masked, merged

_BEHIND = 64  # characters that rules look back at
_MOST_HELD = 4_000  # characters without a sentence's end
_MARGIN = 1_000  # held of those: more than any rule, or anything denied, reaches over a blank
_ONGOING = 256  # characters that have left in which a finding may begin that more text completes
_SHORT = 256  # characters that are looked through again with each that comes
_MORE = 8  # one part in so many of a long text that is held must be new before it is looked through again
_MOST_NEW = 2_048  # characters that are new, at most, where rules go on where they were
AT_ONCE = 256  # characters that are looked through before other work of the event loop has its turn: 0.2 ms
EACH = 32  # characters that a text counts as, however short it is


@dataclass(frozen=True, slots=True)
class Released:
    """Text that may leave, the findings in it, and its length in characters. `before`: the text before the first
    finding, for answers that end at a finding."""

    text: str = ""
    findings: tuple[Finding, ...] = ()
    length: int = 0
    before: str = ""


NOTHING = Released()


@dataclass(slots=True)
class Screen:
    """Filters a text by `rules` and `denied`. Raises `TooSlow` where a denied pattern takes too long."""

    rules: Sequence[Rule]
    denied: Denied | None = None
    names: Names = field(default_factory=Names)
    _text: str = ""  # the held text, and a little before it, as far as it has been joined
    _pieces: list[str] = field(default_factory=list)  # the rest of it
    _length: int = 0  # of both
    _next: int = 0  # characters that must be held before the next look
    _from: int = 0  # where in it the held text begins
    _since: int = 0  # where in it findings that end in the held text may begin
    _passed: int = 0  # characters released
    _searches: Sequence[IncrementalSearch] = ()  # of `rules` and `denied`, through a long held text
    _sentences: SentenceSplitter = field(default_factory=SentenceSplitter)
    _ends: deque[int] = field(default_factory=deque)  # of sentences, that may be too near to the end of the text
    _settled: int = 0  # the last of those that are not

    def feed(self, text: str) -> Released:
        """The text that may leave once `text` is added."""
        self._pieces.append(text)
        self._length += len(text)
        self._sentences.feed(text)
        self._ends.append(self._sentences.settled)
        limit = self._settled_limit()
        held = self._length - self._from
        if held < self._next or (limit <= self._from and held <= _MOST_HELD):
            return NOTHING
        self._join()
        wanted = self._blank_limit(limit) - self._from
        released = self._release(self._from + wanted, last=False)
        held = self._length - self._from
        is_held = wanted <= 0 or released.length < wanted
        self._next = held + held // _MORE if is_held and held > _SHORT else 0
        if wanted <= 0:
            self._next = min(self._next, held + _MOST_NEW)
            self._find_settled()
        return released

    def close(self) -> Released:
        """The rest of the text, as far as it has come: more may follow."""
        self._join()
        return self._release(self._length, last=True)

    def held(self) -> Sequence[Finding]:
        """The findings in the text that is held back."""
        self._join()
        return self._findings()

    def open(self) -> str:
        """The rest of the text, unfiltered."""
        self._join()
        rest, self._from = self._text[self._from :], self._length
        return rest

    def _find_settled(self) -> None:
        """Find what no more text can change."""
        if not self._searches:
            denied = (self.denied.search(self._since),) if self.denied else ()
            self._searches = (IncrementalSearch(self.rules, self._since), *denied)
        for each in self._searches:
            each.look(self._text)

    def _findings(self) -> Sequence[Finding]:
        """All findings in the held text, in order."""
        if self._searches:
            found, *denied = (each.find(self._text) for each in self._searches)
            within = merged((*merged(found), *chain(*denied)))
        else:
            within = find(self._text, self.rules, self._since)
            within = merged((*within, *self.denied.find(self._text, self._since))) if self.denied else within
        if self._since == self._from:
            return within
        return [_beginning_at(self._from, each) for each in within if each.end > self._from]

    def _join(self) -> None:
        self._text, self._pieces = "".join((self._text, *self._pieces)), []

    def _settled_limit(self) -> int:
        """How far what is there may leave, for the sentences that are over."""
        begin = self._passed - self._from  # of what is there, in all of the text
        seen = begin + self._length - (self.denied.reach if self.denied else 0)
        while self._ends and self._ends[0] <= seen:
            self._settled = self._ends.popleft()
        return self._settled - begin

    def _blank_limit(self, limit: int) -> int:
        """The limit, or a later one if more text is held than allowed."""
        if self._length - self._from <= _MOST_HELD:
            return limit
        return max(limit, *(self._text.rfind(sign, self._from, self._length - _MARGIN) for sign in " \t"))

    def _release(self, limit: int, *, last: bool) -> Released:
        if limit <= self._from:
            return NOTHING
        findings = self._findings()
        for each in reversed(findings):  # unfinished findings and their signs are held
            open_end = each.end == len(self._text) and not last
            if each.prefix_start < limit and (each.end > limit or open_end):
                limit = max(each.prefix_start, self._from)
        if limit == self._from:
            return NOTHING
        within = tuple(each for each in findings if each.start < limit)
        first = within[0].start if within else limit
        text = masked(self._text, within, self.names, self._from, limit)
        released = Released(text, within, limit - self._from, self._text[self._from : first])
        self._pass(limit, max(self._since, limit - _ONGOING) if last else limit)
        return released

    def _pass(self, limit: int, since: int) -> None:
        self._searches = ()
        self._passed += limit - self._from
        kept = max(0, min(since, limit) - _BEHIND)
        self._text, self._from, self._since = self._text[kept:], limit - kept, since - kept
        self._length = len(self._text)


def _beginning_at(start: int, finding: Finding) -> Finding:
    """The rest of a finding from `start` on, where it begins before."""
    return replace(finding, start=max(start, finding.start), prefix_start=max(start, finding.prefix_start))


class Late(Exception):
    """The time is over."""


class RefusedText(Exception):
    """A text with a refused finding: the name of the rule, and a description for people."""

    def __init__(self, rule: str, what: str):
        super().__init__(rule)
        self.rule, self.what = rule, what


class ContentScanner:
    """Checks texts in steps, between which the event loop runs. `names` replace masked texts; `found` counts findings
    by rule. Each step but the first raises `Late` when the time is over."""

    def __init__(self, checks: Checks, names: Names, deadline: Deadline):
        self._checks, self._names, self._deadline = checks, names, deadline
        self._in_step = 0  # characters that this step has looked through
        self.found = Counter[str]()

    def without_private(self, text: str) -> Generator[None, None, str]:
        """`text` with names in the place of secrets and personal data. Raises `RefusedText`."""
        screen, shown = Screen(self._checks.masks, names=self._names), list[str]()
        for at in range(0, len(text), AT_ONCE):
            piece = text[at : at + AT_ONCE]
            if self._ends_step(piece):
                yield
            released = screen.feed(piece)
            self._note(released.findings)
            shown.append(released.text)
        released = screen.close()
        self._note(released.findings)
        return "".join((*shown, released.text))

    def for_injections(self, texts: Iterable[str]) -> Generator[None, None, tuple[str, float]]:
        """The rule that detects an injection, empty without one, and the score of the classifier."""
        least = self._checks.settings.injection_score
        for piece in (piece for text in texts for piece in injection.pieces(text)):
            if self._ends_step(piece):
                yield
            rule, score = injection.by_pattern(piece), 0.0
            if not rule and (score := injection.probability(piece)) >= least:
                rule = injection.CLASSIFIER
            if rule:
                return rule, score
        return "", 0.0

    def _note(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.kind in self._checks.refuses:
                raise RefusedText(finding.rule, f"a {finding.label} ({finding.rule})")
            self.found[finding.rule] += 1

    def _ends_step(self, piece: str) -> bool:
        """Whether the step has to end before this piece of a text."""
        size = len(piece) + EACH
        ends = self._in_step > 0 and self._in_step + size > AT_ONCE
        self._in_step = size if ends else self._in_step + size
        if ends:
            self.in_time()
        return ends

    def in_time(self) -> None:
        """Raise `Late` when the time is over."""
        if self._deadline.remaining() <= 0:
            raise Late


async def holds(text: str, rules: Sequence[Rule]) -> bool:
    """Whether any of the rules finds something in a text. The event loop runs between the parts of a long one."""
    screen = Screen(rules)
    for at in range(0, len(text), AT_ONCE):
        if screen.feed(text[at : at + AT_ONCE]).findings:
            return True
        if len(text) > AT_ONCE:
            await give_way()
    return bool(screen.close().findings)


def describe_injection(rule: str, score: float) -> str:
    """The description of an injection, for people."""
    return f"injection, {rule}{f' {score:.2f}' if score else ''}"
