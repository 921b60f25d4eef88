"""The filter of the guard for a text on its way to the client: text leaves sentence by sentence, and is masked or cut.

A long text is read in parts, between which the event loop runs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hedgerow._sentences import parts
from hedgerow.chat.v1 import chat_pb2
from services.gateway.answer.ledger import Ledger
from services.gateway.guard.checks import Checks
from services.gateway.guard.denied import TooSlow
from services.gateway.guard.screen import AT_ONCE, Released, Screen
from services.gateway.labels import Act, Degraded
from services.runtime.aside import give_way
from services.runtime.security.private_data import Names


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one message to a client."""

    text: str
    tokens: int = 0
    logprobs: Sequence[chat_pb2.TokenLogprob] = ()


@dataclass(slots=True)
class _TokenEnd:
    """Tokens and log-probabilities of a text that ends at this character, counted from the first."""

    end: int
    piece: Piece

    def forget_spelling(self, left: int) -> None:
        """Drop its log-probabilities where any of its text is among the first `left` characters."""
        if self.end - len(self.piece.text) < left:
            self.piece = Piece(self.piece.text, self.piece.tokens)


@dataclass(slots=True)
class StreamFilter:
    """Passes on the text that may leave. `cut`: the answer ends with the last text passed on."""

    checks: Checks
    ledger: Ledger
    names: Names = field(default_factory=Names)
    tenant: str = ""
    cut: bool = False
    _unseen: bool = False  # a pattern was too slow: the rest passes unfiltered
    _came: int = 0  # characters
    _left: int = 0
    _waiting: deque[_TokenEnd] = field(default_factory=deque)
    _screen: Screen = field(init=False)

    def __post_init__(self) -> None:
        self._screen = Screen(self.checks.answers, self.checks.denied, self.names)

    async def feed(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> Piece | None:
        """The text that may be sent now; None where there is none. The event loop runs between the parts of a long
        text."""
        piece = Piece(text, tokens, logprobs)
        if self._unseen:
            return piece
        self._came += len(text)
        self._waiting.append(_TokenEnd(self._came, piece))
        if len(text) <= AT_ONCE:
            return self._seen(text)
        return await self._seen_in_parts(text)

    def close(self) -> Piece | None:
        """The rest, when no more text comes."""
        return None if self._unseen or self.cut or not self._waiting else self._seen(None)

    def must_end(self) -> bool:
        """Whether the answer ends with the text that is held back, as far as it has come."""
        if self._unseen or self.cut:
            return False
        try:
            return any(each.kind in self.checks.ends for each in self._screen.held())
        except TooSlow:
            return True

    async def _seen_in_parts(self, text: str) -> Piece | None:
        left = list[Piece]()
        for part in parts(text, AT_ONCE):
            if self.cut:
                break
            released = Piece(part) if self._unseen else self._seen(part)
            left += [released] if released else []
            await give_way(self.tenant)
        return _joined(left)

    def _seen(self, text: str | None) -> Piece | None:
        try:
            released = self._screen.close() if text is None else self._screen.feed(text)
        except TooSlow as problem:
            return self._late(problem)
        if not released.length:
            return None
        return self._handed_on(released)

    def _handed_on(self, released: Released) -> Piece:
        self._left += released.length
        if released.findings:  # log-probabilities would spell the hidden text
            for waiting in self._waiting:
                waiting.forget_spelling(self._left)
        ended = [each for each in released.findings if each.kind in self.checks.ends]
        if released.findings:
            self._record(Act.GUARD_ENDED if ended else Act.GUARD_MASKED, released)
        self.cut = bool(ended)
        tokens, logprobs = self._what_came(everything=self.cut)
        if self.cut:
            return Piece(released.before, tokens)
        return Piece(released.text, tokens, logprobs)

    def _what_came(self, *, everything: bool) -> tuple[int, Sequence[chat_pb2.TokenLogprob]]:
        """Tokens and log-probabilities of the text that has left; `everything`: also of text that never will, because
        it is charged."""
        tokens, logprobs = 0, list[chat_pb2.TokenLogprob]()
        while self._waiting and (everything or self._waiting[0].end <= self._left):
            piece = self._waiting.popleft().piece
            tokens += piece.tokens
            logprobs += piece.logprobs
        return tokens, logprobs

    def _record(self, act: Act, released: Released) -> None:
        found = Counter(each.rule for each in released.findings)
        self.ledger.decide(act, "answer", counted(found))
        if act is Act.GUARD_MASKED:
            self.ledger.degrade(Degraded.GUARD_MASKED)

    def _late(self, problem: TooSlow) -> Piece:
        is_open = self.checks.settings.late == "open"
        what = "the rest is not looked through" if is_open else "the answer ends"
        self.ledger.decide(Act.GUARD_LATE, "answer", f"{problem}: {what}")
        self.ledger.degrade(Degraded.GUARD_LATE)
        self._unseen, self.cut = is_open, not is_open
        tokens, logprobs = self._what_came(everything=True)
        return Piece(self._screen.open(), tokens, logprobs) if is_open else Piece("", tokens)


def _joined(pieces: Sequence[Piece]) -> Piece | None:
    """The pieces as one; None without any."""
    if not pieces:
        return None
    logprobs = [each for piece in pieces for each in piece.logprobs]
    return Piece("".join(piece.text for piece in pieces), sum(piece.tokens for piece in pieces), logprobs)


def counted(rules: Counter[str]) -> str:
    """The findings by rule, for people: `2 email, 1 card`."""
    return ", ".join(f"{count} {rule}" for rule, count in rules.items())
