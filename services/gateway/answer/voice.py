"""What is said to the client of an answer: its text and the thoughts before it, looked through where that is wanted.

What has been said is never taken back but by a patch that replaces all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hedgerow._sentences import SentenceSplitter
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.screened import Piece, Screened
from services.gateway.guard.checks import Checks
from services.runtime.security.private_data import Names


class Voice:
    """Writes into the ledger and the outbox. Where nothing is looked for, what comes leaves as it is.

    `sentence_ends`: the client wants to know them.
    """

    __slots__ = ("_ledger", "_next", "_outbox", "_screened", "_sentences", "_text", "_thought", "replacing")

    def __init__(self, ledger: Ledger, outbox: list[pb.Event], checks: Checks | None, *, sentence_ends: bool = False):
        self._ledger, self._outbox = ledger, outbox
        self._sentences = SentenceSplitter() if sentence_ends else None
        self.replacing = ""  # the stage whose first text is to replace what has been said
        self._text = self._thought = self._screened = None
        self._next: Screened | None = None  # for the text that will replace what has been said
        if checks and checks.screens:
            self._screened = partial(Screened, checks, ledger, Names())
            self._text, self._thought = self._screened(), self._screened()

    @property
    def screens(self) -> bool:
        """Whether what comes is looked through before it leaves."""
        return self._text is not None

    def say(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> None:
        """More of the answer. What is held back leaves with more of it, or with its end."""
        if self._text is None or self._thought is None:
            self._write(Piece(text, tokens, logprobs))
        elif not self._ledger.finish_reason:
            self._text, self._next = self._next or self._text, None
            self._write_thought(self._thought.close())
            self._write(self._text.feed(text, tokens, logprobs))
            self._end_where_cut()

    def think(self, thought: str, tokens: int) -> None:
        """More of what a model thinks before it answers."""
        if self._thought is None:
            self._write_thought(Piece(thought, tokens))
        elif not self._ledger.finish_reason:
            self._write_thought(self._thought.feed(thought, tokens))
            self._end_where_cut()

    def replace(self, stage: str) -> None:
        """What is said next stands in the place of all text so far, held back or not. Until then that stays."""
        self.replacing = stage if self._ledger.written.text else ""
        self._next = self._screened() if self._screened else None

    def keep(self) -> None:
        """What has been said stays after all."""
        self.replacing, self._next = "", None

    def release(self) -> None:
        """What is held back leaves: no more text comes, or something else before it."""
        if self._text and self._thought and not self._next:
            self._write_thought(self._thought.close())
            self._write(self._text.close())
            self._end_where_cut()

    def finish(self, reason: chat_pb2.FinishReason) -> None:
        """The answer is over, unless the guard has ended it before."""
        self.release()
        self._ledger.finish_reason = self._ledger.finish_reason or reason

    def _end_where_cut(self) -> None:
        if (self._text and self._text.cut) or (self._thought and self._thought.cut):
            self._ledger.finish_reason = chat_pb2.FINISH_REASON_CONTENT_FILTER

    def _write(self, piece: Piece | None) -> None:
        if piece is None:
            return
        if not piece.text:  # an answer that ends here has cost its tokens all the same
            self._ledger.written.tokens += piece.tokens
            return
        if self._sentences:
            if self.replacing:
                self._sentences = SentenceSplitter()
            self._sentences.feed(piece.text)
        if self.replacing:
            self._ledger.written.restart()
        self._ledger.written.add_text(piece.text, piece.tokens, piece.logprobs)
        if self.replacing:
            patch, self.replacing = pb.Patch(stage=self.replacing, text=piece.text, replaces=True), ""
            self._outbox.append(pb.Event(patch=patch))
            return
        delta = pb.TextDelta(text=piece.text, tokens=piece.tokens, logprobs=piece.logprobs)
        if self._sentences:
            delta.sentence_end = self._sentences.settled
        self._outbox.append(pb.Event(delta=delta))

    def _write_thought(self, piece: Piece | None) -> None:
        if piece is None:
            return
        self._ledger.written.add_reasoning(piece.text, piece.tokens)
        self._outbox.append(pb.Event(reasoning=pb.ReasoningDelta(text=piece.text, tokens=piece.tokens)))
