"""What is said to the client of an answer: its text and the thoughts before it, looked through where that is wanted.

What has been said is never taken back but by a patch that replaces all of it. A long text is read in parts, between
which the event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from hedgerow._sentences import SentenceSplitter, parts
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.content_scanner import AT_ONCE
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.stream_filter import Piece, StreamFilter
from services.gateway.guard.checks import Checks
from services.runtime.security.private_data import Names


class TextWriter:
    """Writes into the ledger and to the client. Where nothing is looked for, what comes leaves as it is.

    `sentence_ends`: the client wants to know them.
    """

    __slots__ = ("_ledger", "_next", "_screened", "_sentences", "_tells", "_text", "_thought", "_writer", "replacing")

    def __init__(self, ledger: Ledger, writer: EventWriter, checks: Checks | None, *, sentence_ends: bool = False):
        self._ledger, self._writer = ledger, writer
        self._tells = sentence_ends
        self._sentences: SentenceSplitter | None = SentenceSplitter()  # None once there is no more to be found
        self.replacing = ""  # the stage whose first text is to replace what has been said
        self._text = self._thought = self._screened = None
        self._next: StreamFilter | None = None  # for the text that will replace what has been said
        if checks and checks.screens:
            self._screened = partial(StreamFilter, checks, ledger, Names())
            self._text, self._thought = self._screened(), self._screened()

    @property
    def screens(self) -> bool:
        """Whether what comes is looked through before it leaves."""
        return self._text is not None

    async def say(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> None:
        """More of the answer. What is held back leaves with more of it, or with its end."""
        if self._text is None or self._thought is None:
            await self._write(Piece(text, tokens, logprobs))
        elif not self._ledger.finish_reason:
            self._text, self._next = self._next or self._text, None
            self._write_thought(self._thought.close())
            await self._write(await self._text.feed(text, tokens, logprobs))
            self._end_where_cut()

    async def think(self, thought: str, tokens: int) -> None:
        """More of what a model thinks before it answers."""
        if self._thought is None:
            self._write_thought(Piece(thought, tokens))
        elif not self._ledger.finish_reason:
            self._write_thought(await self._thought.feed(thought, tokens))
            self._end_where_cut()

    def replace(self, stage: str) -> None:
        """What is said next stands in the place of all text so far, held back or not. Until then that stays."""
        self.replacing = stage if self._ledger.written.text else ""
        self._next = self._screened() if self._screened else None

    def keep(self) -> None:
        """What has been said stays after all."""
        self.replacing, self._next = "", None

    async def release(self) -> None:
        """What is held back leaves: no more text comes, or something else before it."""
        if self._text and self._thought and not self._next:
            self._write_thought(self._thought.close())
            await self._write(self._text.close())
            self._end_where_cut()

    async def finish(self, reason: chat_pb2.FinishReason) -> None:
        """The answer is over, unless the guard has ended it before."""
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
            await asyncio.sleep(0)

    def _find_sentences(self, text: str) -> None:
        """The first one, which is of use by itself, and where a client wants to know them, all."""
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
