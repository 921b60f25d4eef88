"""The text and the reasoning of an answer on their way to the client, filtered by the guard: text leaves sentence by
sentence.

Sent text is never taken back, except by a patch that replaces all of it. A long text is read in parts, between which
the event loop runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from hedgerow._sentences import SentenceSplitter, parts
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.ledger import Ledger
from services.gateway.guard.checks import Checks
from services.gateway.guard.denied import TooSlow
from services.gateway.guard.screen import AT_ONCE, Released, Screen
from services.gateway.labels import Act, Degraded
from services.runtime.aside import give_way
from services.runtime.security.private_data import Names

_EVERY_S = 0.05  # seconds between pieces at a pace: shorter pauses are not visible, and each message costs


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
        if released.findings:  # log-probabilities would spell what is hidden
            for waiting in self._waiting:
                waiting.forget_spelling(self._left)
        ended = [each for each in released.findings if each.kind in self.checks.ends]
        if released.findings:
            self._tell(Act.GUARD_ENDED if ended else Act.GUARD_MASKED, released)
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

    def _tell(self, act: Act, released: Released) -> None:
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
    """For people: `2 email, 1 card`."""
    return ", ".join(f"{count} {rule}" for rule, count in rules.items())


def paced(text: str, per_s: float, within_s: float) -> Iterator[tuple[float, str]]:
    """Pieces of a text, each with its due time in seconds after the first: `per_s` characters a second, or faster so
    that the last one is due by `within_s`."""
    if per_s * within_s < len(text):
        per_s = len(text) / within_s if within_s > 0 else float("inf")
    size = int(min(max(1, per_s * _EVERY_S), max(1, len(text))))
    for at in range(0, len(text), size):
        yield at / per_s, text[at : at + size]


class TextWriter:
    """Writes into the ledger and to the client. Without a guard, text passes unchanged. `sentence_ends`: the client
    asks for them."""

    __slots__ = (
        *("_ledger", "_next", "_screened", "_sentences", "_tells", "_tenant", "_text", "_thought", "_writer"),
        "replacing",
    )

    def __init__(
        self,
        ledger: Ledger,
        writer: EventWriter,
        checks: Checks | None,
        *,
        sentence_ends: bool = False,
        tenant: str = "",
    ):
        self._ledger, self._writer, self._tenant = ledger, writer, tenant
        self._tells = sentence_ends
        self._sentences: SentenceSplitter | None = SentenceSplitter()  # None once no more are to be found
        self.replacing = ""  # the stage whose first text is to replace all text so far
        self._text = self._thought = self._screened = None
        self._next: StreamFilter | None = None  # for the text that will replace the text so far
        if checks and checks.screens:
            self._screened = partial(StreamFilter, checks, ledger, Names(), tenant)
            self._text, self._thought = self._screened(), self._screened()

    @property
    def screens(self) -> bool:
        """Whether text is filtered before it leaves."""
        return self._text is not None

    async def say(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> None:
        """Add text to the answer. Text that the guard holds back is sent with later text, or at the end."""
        if self._text is None or self._thought is None:
            await self._write(Piece(text, tokens, logprobs))
        elif not self._ledger.finish_reason:
            self._text, self._next = self._next or self._text, None
            self._write_thought(self._thought.close())
            await self._write(await self._text.feed(text, tokens, logprobs))
            self._end_where_cut()

    async def say_at_pace(self, text: str, per_s: float, within_s: float) -> None:
        """Add text in pieces, `per_s` characters a second, or faster so that all are sent within `within_s` seconds.
        Stops where the guard ends the answer."""
        began = self._ledger.clock()
        for due_s, piece in paced(text, per_s, within_s):
            if (early_s := began + due_s - self._ledger.clock()) > 0:
                await asyncio.sleep(early_s)
            await self.say(piece)
            if self._ledger.finish_reason:
                return

    async def think(self, thought: str, tokens: int) -> None:
        """Add reasoning."""
        if self._thought is None:
            self._write_thought(Piece(thought, tokens))
        elif not self._ledger.finish_reason:
            self._write_thought(await self._thought.feed(thought, tokens))
            self._end_where_cut()

    def replace(self, stage: str) -> None:
        """Have the next text replace all text so far, sent or held back. Until then that stays."""
        self.replacing = stage if self._ledger.written.text else ""
        self._next = self._screened() if self._screened else None

    def keep(self) -> None:
        """Keep the text so far: nothing replaces it."""
        self.replacing, self._next = "", None

    async def release(self) -> None:
        """Send the text that is held back: no more text comes, or another event before it."""
        if self._text and self._thought and not self._next:
            self._write_thought(self._thought.close())
            await self._write(self._text.close())
            self._end_where_cut()

    async def finish(self, reason: chat_pb2.FinishReason) -> None:
        """Finish the answer, unless the guard has ended it before."""
        await self.release()
        self._ledger.finish(reason)

    def _end_where_cut(self) -> None:
        if (self._text and self._text.cut) or (self._thought and self._thought.cut):
            self._ledger.finish(chat_pb2.FINISH_REASON_CONTENT_FILTER)

    async def _write(self, piece: Piece | None) -> None:
        if piece is None:
            return
        written = self._ledger.written
        if not piece.text:  # an answer that ends here has cost its tokens all the same
            written.tokens += piece.tokens
            return
        stage, self.replacing = self.replacing, ""
        if stage:
            written.restart()
            self._sentences = SentenceSplitter()
        written.add_text(piece.text, piece.tokens, piece.logprobs)
        if self._sentences:
            if len(piece.text) > AT_ONCE:
                await self._find_in_parts(piece.text)
            else:
                self._find_sentences(piece.text)
        if stage:
            self._writer.write(pb.Event(patch=pb.Patch(stage=stage, text=piece.text, replaces=True)))
            return
        delta = pb.TextDelta(text=piece.text, tokens=piece.tokens, logprobs=piece.logprobs)
        if self._tells and self._sentences:
            delta.sentence_end = self._sentences.settled
        self._writer.write(pb.Event(delta=delta))

    async def _find_in_parts(self, text: str) -> None:
        for part in parts(text, AT_ONCE):
            self._find_sentences(part)
            await give_way(self._tenant)

    def _find_sentences(self, text: str) -> None:
        """The first sentence end, for the time to usable text, and all of them where a client asks for them."""
        if self._sentences is None:
            return
        written = self._ledger.written
        if self._sentences.feed(text) and written.usable_at is None:
            written.usable_at = written.clock()
        if written.usable_at is not None and not self._tells:
            self._sentences = None

    def _write_thought(self, piece: Piece | None) -> None:
        if piece is None:
            return
        self._ledger.written.add_reasoning(piece.text, piece.tokens)
        self._writer.write(pb.Event(reasoning=pb.ReasoningDelta(text=piece.text, tokens=piece.tokens)))
