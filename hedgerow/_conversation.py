"""A spoken conversation: what is sent and what comes back. No I/O here; both clients share it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from hedgerow import _convert
from hedgerow._errors import HedgerowError
from hedgerow._events import Final, Transcript
from hedgerow._incoming import IncomingAnswer
from hedgerow._peer import Peer
from hedgerow._speech import SpeechStarted
from hedgerow._status import from_rpc_error
from hedgerow._turns import ConversationEvent, Interrupted, TurnFailed
from hedgerow.gateway.v1 import gateway_pb2 as pb

INTERRUPT = pb.ConverseRequest(interrupt=pb.Interrupt())


class IncomingTurns:
    """A conversation as it is read: `(turn, event)`."""

    def __init__(self, peer: Peer, *, allow_fallback: bool = False):
        self._peer, self._allow_fallback = peer, allow_fallback
        self._answers: dict[int, IncomingAnswer] = {}  # by turn, while they come

    def events(self, message: pb.ConverseResponse) -> list[tuple[int, ConversationEvent]]:
        """The events, each with its turn."""
        return [(message.turn, event) for event in self._events(message)]

    def _events(self, message: pb.ConverseResponse) -> Iterator[ConversationEvent]:
        match message.WhichOneof("kind"):
            case "speech_started":
                yield SpeechStarted(message.speech_started.at_s)
            case "transcript":
                yield self._transcript(message)
            case "answer":
                try:
                    events = self._answer(message.turn).events(message.answer)
                except HedgerowError as error:
                    yield self._failed(message.turn, error)
                    return
                if any(isinstance(event, Final) for event in events):
                    del self._answers[message.turn]
                yield from events
            case "interrupted":
                self._answers.pop(message.turn, None)
                yield Interrupted(message.interrupted.text)
            case "error":
                yield self._failed(message.turn, _convert.batch_error(message.error))

    def _failed(self, turn: int, error: HedgerowError) -> TurnFailed:
        if answer := self._answers.pop(turn, None):
            answer.explain(error)
        return TurnFailed(error)

    def _transcript(self, message: pb.ConverseResponse) -> Transcript:
        if message.transcript.final:
            self._answer(message.turn)  # from here on the speaker waits: the answer's timings begin
        return _convert.transcript(message.transcript)

    def _answer(self, turn: int) -> IncomingAnswer:
        if turn not in self._answers:
            self._answers[turn] = IncomingAnswer(self._peer, None, allow_fallback=self._allow_fallback)
        return self._answers[turn]

    def failed(self, error: grpc.RpcError) -> None:
        """Raise what gRPC raised as a typed error."""
        raise from_rpc_error(error, self._peer, None) from error

    def ended(self) -> None:
        """A conversation may end at any time."""
