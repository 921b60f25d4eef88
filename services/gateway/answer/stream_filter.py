"""The guard's filter of a streamed answer: text is sent sentence by sentence, and is masked, or cut at a finding.

A long text is checked in parts, between which the event loop runs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hedgerow._sentences import parts
from hedgerow.chat.v1 import chat_pb2
from services.gateway.answer.ledger import Ledger
from services.gateway.guard.checks import Checks
from services.gateway.guard.denied import TooSlow
from services.gateway.guard.screen import AT_ONCE, Released, Screen
from services.gateway.labels import Act, Degraded
from services.runtime.aside import give_way
from services.runtime.security.private_data import Names


class Piece(NamedTuple):
    """The text of one message to a client."""

    text: str
    tokens: int = 0
    logprobs: Sequence[chat_pb2.TokenLogprob] = ()


@dataclass(slots=True)
class _Unsent:
    """A received piece whose tokens were not sent yet. `end`: the answer's characters up to its end."""

    end: int
    piece: Piece

    def forget_logprobs(self, within: int) -> None:
        """Drop its log-probabilities where any of its text is among the first `within` characters of the answer."""
        if self.end - len(self.piece.text) < within:
            self.piece = Piece(self.piece.text, self.piece.tokens)


@dataclass(slots=True)
class StreamFilter:
    """Filters one answer. `cut`: the answer ends with the last text sent."""

    checks: Checks
    ledger: Ledger
    names: Names = field(default_factory=Names)
    tenant: str = ""
    cut: bool = False
    _unfiltered: bool = False  # a pattern was too slow: the rest passes unfiltered
    _received: int = 0  # characters of the answer
    _sent: int = 0  # of these
    _waiting: deque[_Unsent] = field(default_factory=deque)
    _screen: Screen = field(init=False)

    def __post_init__(self) -> None:
        self._screen = Screen(self.checks.answers, self.checks.denied, self.names)

    async def feed(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> Piece | None:
        """Take the next text of the model. Returns the text that may be sent now; None where there is none."""
        piece = Piece(text, tokens, logprobs)
        if self._unfiltered:
            return piece
        self._received += len(text)
        self._waiting.append(_Unsent(self._received, piece))
        if len(text) <= AT_ONCE:
            return self._filter(text)
        return await self._filter_parts(text)

    def close(self) -> Piece | None:
        """The rest, when no more text comes."""
        return None if self._unfiltered or self.cut or not self._waiting else self._filter(None)

    def must_end(self) -> bool:
        """Whether the answer ends with the text that is held back, as far as it has come."""
        if self._unfiltered or self.cut:
            return False
        try:
            return any(each.kind in self.checks.ends for each in self._screen.held())
        except TooSlow:
            return True

    async def _filter_parts(self, text: str) -> Piece | None:
        sent = list[Piece]()
        for part in parts(text, AT_ONCE):
            if self.cut:
                break
            released = Piece(part) if self._unfiltered else self._filter(part)
            sent += [released] if released else []
            await give_way(self.tenant)
        return _joined(sent)

    def _filter(self, text: str | None) -> Piece | None:
        try:
            released = self._screen.close() if text is None else self._screen.feed(text)
        except TooSlow as problem:
            return self._late(problem)
        if not released.length:
            return None
        return self._send(released)

    def _send(self, released: Released) -> Piece:
        self._sent += released.length
        if released.findings:  # log-probabilities would spell the hidden text
            for waiting in self._waiting:
                waiting.forget_logprobs(self._sent)
        ended = [each for each in released.findings if each.kind in self.checks.ends]
        if released.findings:
            self._record(Act.GUARD_ENDED if ended else Act.GUARD_MASKED, released)
        self.cut = bool(ended)
        tokens, logprobs = self._take_tokens(everything=self.cut)
        if self.cut:
            return Piece(released.before, tokens)
        return Piece(released.text, tokens, logprobs)

    def _take_tokens(self, *, everything: bool) -> tuple[int, Sequence[chat_pb2.TokenLogprob]]:
        """Tokens and log-probabilities of the text that is sent now; `everything`: also of text that never will be,
        because it is charged."""
        tokens, logprobs = 0, list[chat_pb2.TokenLogprob]()
        while self._waiting and (everything or self._waiting[0].end <= self._sent):
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
        what = "the rest is not checked" if is_open else "the answer ends"
        self.ledger.decide(Act.GUARD_LATE, "answer", f"{problem}: {what}")
        self.ledger.degrade(Degraded.GUARD_LATE)
        self._unfiltered, self.cut = is_open, not is_open
        tokens, logprobs = self._take_tokens(everything=True)
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
