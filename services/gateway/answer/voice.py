"""What is said to the client of an answer: its text and the thoughts before it, looked through where that is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.screened import Piece, Screened
from services.gateway.guard.checks import Checks
from services.runtime.security.private_data import Names


class Voice:
    """Writes into the ledger and the outbox. Where nothing is looked for, what comes leaves as it is."""

    __slots__ = ("_ledger", "_outbox", "_text", "_thought")

    def __init__(self, ledger: Ledger, outbox: list[pb.Event], checks: Checks | None):
        self._ledger, self._outbox = ledger, outbox
        self._text = self._thought = None
        if checks and checks.screens:
            names = Names()
            self._text, self._thought = Screened(checks, ledger, names), Screened(checks, ledger, names)

    def say(self, text: str, tokens: int = 0, logprobs: Sequence[chat_pb2.TokenLogprob] = ()) -> None:
        """More of the answer. What is held back leaves with more of it, or with its end."""
        if self._text is None or self._thought is None:
            self._write(Piece(text, tokens, logprobs))
        elif not self._ledger.finish_reason:
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

    def release(self) -> None:
        """What is held back leaves: no more text comes, or something else before it."""
        if self._text and self._thought:
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
        self._ledger.written.add_text(piece.text, piece.tokens, piece.logprobs)
        delta = pb.TextDelta(text=piece.text, tokens=piece.tokens, logprobs=piece.logprobs)
        self._outbox.append(pb.Event(delta=delta))

    def _write_thought(self, piece: Piece | None) -> None:
        if piece is None:
            return
        self._ledger.written.add_reasoning(piece.text, piece.tokens)
        self._outbox.append(pb.Event(reasoning=pb.ReasoningDelta(text=piece.text, tokens=piece.tokens)))
