"""The text and the reasoning of an answer on their way to the client, filtered by the guard.

Sent text is never taken back, except by a patch that replaces all of it. A long text is read in parts, between which
the event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from hedgerow._sentences import SentenceSplitter, parts
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.stream_filter import Piece, StreamFilter
from services.gateway.guard.checks import Checks
from services.gateway.guard.screen import AT_ONCE
from services.runtime.aside import give_way
from services.runtime.security.private_data import Names

_EVERY_S = 0.05  # seconds between pieces at a pace: shorter pauses are not visible, and each message costs


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
        *("_ledger", "_marks_sentences", "_next", "_screened", "_sentences", "_tenant", "_text", "_thought", "_writer"),
        *("cut", "replacing"),
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
        self._marks_sentences = sentence_ends
        self._sentences: SentenceSplitter | None = SentenceSplitter()  # None once no more are to be found
        self.cut = False  # whether the guard has ended the answer
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
        elif not self.cut:
            self._text, self._next = self._next or self._text, None
            self._write_thought(self._thought.close())
            await self._write(await self._text.feed(text, tokens, logprobs))
            self._note_cut()

    async def say_at_pace(self, text: str, per_s: float, within_s: float) -> None:
        """Add text in pieces, `per_s` characters a second, or faster so that all are sent within `within_s` seconds.
        Stops where the guard ends the answer."""
        began = self._ledger.clock()
        for due_s, piece in paced(text, per_s, within_s):
            if (early_s := began + due_s - self._ledger.clock()) > 0:
                await asyncio.sleep(early_s)
            await self.say(piece)
            if self.cut:
                return

    async def think(self, thought: str, tokens: int) -> None:
        if self._thought is None:
            self._write_thought(Piece(thought, tokens))
        elif not self.cut:
            self._write_thought(await self._thought.feed(thought, tokens))
            self._note_cut()

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
            self._note_cut()

    async def pause(self) -> None:
        """Keep holding text back, because more may come after calls of tools. What ends the answer ends it now."""
        if self._text and self._text.must_end():
            await self.release()

    async def finish(self, reason: chat_pb2.FinishReason) -> chat_pb2.FinishReason:
        """Send the text that is held back. Returns the reason why the answer ends."""
        await self.release()
        return self.reason(reason)

    def reason(self, reason: chat_pb2.FinishReason) -> chat_pb2.FinishReason:
        """This reason, unless the guard has ended the answer."""
        return chat_pb2.FINISH_REASON_CONTENT_FILTER if self.cut else reason

    def _note_cut(self) -> None:
        self.cut = self.cut or bool((self._text and self._text.cut) or (self._thought and self._thought.cut))

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
        if self._marks_sentences and self._sentences:
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
        if written.usable_at is not None and not self._marks_sentences:
            self._sentences = None

    def _write_thought(self, piece: Piece | None) -> None:
        if piece is None:
            return
        self._ledger.written.add_reasoning(piece.text, piece.tokens)
        self._writer.write(pb.Event(reasoning=pb.ReasoningDelta(text=piece.text, tokens=piece.tokens)))
