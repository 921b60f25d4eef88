"""Writers of answers in the gateway, one for each API, and readers of them in the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from opentelemetry.trace import INVALID_SPAN

from hedgerow._incoming import Callbacks, IncomingAnswer
from hedgerow._outgoing import Outgoing
from hedgerow._peer import Peer
from hedgerow._resuming import Resuming
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.event_writer import EventWriter
from services.gateway.answer.ledger import Ledger
from services.gateway.answer.model_call import Tried
from services.gateway.answer.output import Output
from services.gateway.answer.plan import make_plan
from services.gateway.answer.text_writer import TextWriter
from services.gateway.decisions import Decisions
from services.gateway.generation.job import Report
from services.gateway.guard.checks import guard_checks
from services.gateway.http.dialects.chat_answer import ChatWriter
from services.gateway.http.dialects.chat_relay import RelayedChat
from services.gateway.http.dialects.completions import CompletionWriter
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.dialects.messages_relay import RelayedMessages
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.dialects.responses_relay import RelayedResponse
from services.gateway.http.request_options import RequestOptions
from services.gateway.settings.guard import GuardSettings
from services.runtime.strict_json import compact
from tests.clock import PausedClock
from tests.unit.linear.reader import Reader, encodable, ran

_GUARD = GuardSettings(answer_personal="mask", answer_secrets="mask")
_FINAL = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP)
Event = Mapping[str, Any]
_Writer = ChatWriter | CompletionWriter | MessageWriter | ResponseWriter


@lru_cache(1_024)  # only the reader is measured, and pieces of one character repeat
def _chunk(piece: str) -> bytes:
    call = {"index": 0, "function": {"arguments": piece}}
    choice = {"delta": {"content": piece, "tool_calls": [call]}, "logprobs": {"content": [{"token": piece}]}}
    return compact({"id": "1", "choices": [choice]})


def _calls(pieces: Iterable[str]) -> bytes:
    """A call of its own for each piece."""
    calls = [{"index": index, "function": {"arguments": piece}} for index, piece in enumerate(pieces)]
    return compact({"id": "1", "choices": [{"delta": {"tool_calls": calls}}]})


@lru_cache(1_024)
def _deltas(piece: str) -> Sequence[bytes]:
    deltas = ({"type": "text_delta", "text": piece}, {"type": "citations_delta", "citation": piece})
    return [compact({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in deltas]


@lru_cache(1_024)
def _of_response(piece: str) -> Sequence[bytes]:
    text = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": piece}
    call = {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": piece}
    return [compact(text), compact(call)]


@lru_cache(1_024)
def _events(piece: str) -> Sequence[pb.Event]:
    """The gateway's events of a piece: a thought, a text, and arguments of a call."""
    text = encodable(piece)
    call = chat_pb2.ToolCallDelta(index=0, id="1", name="search", arguments=text)
    reasoning, delta = pb.ReasoningDelta(text=text), pb.TextDelta(text=text)
    return [pb.Event(reasoning=reasoning), pb.Event(delta=delta), pb.Event(tool_call=call)]


def _relayed_chat(pieces: Sequence[str]) -> None:
    relayed = RelayedChat(usage=True)
    for piece in pieces:
        relayed.gather([_chunk(piece)])
    relayed.gather([compact({"choices": [{"finish_reason": "stop"}]})])
    assert relayed.whole()


def _relayed_calls(pieces: Sequence[str]) -> None:
    """Each has its arguments in two pieces, and all others come between them."""
    relayed = RelayedChat(usage=True)
    relayed.gather([_calls(pieces), _calls(pieces)])
    relayed.gather([compact({"choices": [{"finish_reason": "stop"}]})])
    (choice,) = relayed.whole()["choices"]
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == [each * 2 for each in pieces]


def _relayed_message(pieces: Sequence[str]) -> None:
    relayed = RelayedMessages()
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    relayed.gather(map(compact, ({"type": "message_start", "message": {}}, block)))
    for piece in pieces:
        relayed.gather(_deltas(piece))
    relayed.gather([compact({"type": "message_delta", "delta": {}})])
    assert relayed.whole()


def _relayed_response(pieces: Sequence[str]) -> None:
    relayed = RelayedResponse()
    added = "response.output_item.added"
    part = {"type": "output_text", "text": ""}
    opened: Iterable[Event] = (
        {"type": added, "output_index": 0, "item": {"type": "message", "content": [part]}},
        {"type": added, "output_index": 1, "item": {"type": "function_call", "arguments": ""}},
    )
    relayed.chunks(map(compact, opened))
    for piece in pieces:
        relayed.chunks(_of_response(piece))
    assert [kind for kind, _ in relayed.close("incomplete")]
    text = "".join(pieces)
    assert (relayed.items()[0]["content"][0]["text"], relayed.items()[1]["arguments"]) == (text, text)


def _together(relays: Callable[[], RelayedChat | RelayedMessages | RelayedResponse]) -> Reader:
    """Events that come in one message."""

    def relay(pieces: Sequence[str]) -> None:
        assert relays().chunks(map(_event_of_each, pieces))

    return relay


@lru_cache(1_024)
def _event_of_each(piece: str) -> bytes:
    """An event that each API's relay takes."""
    return compact({"id": "1", "type": "content_block_delta", "choices": [{"delta": {"content": piece}}]})


def _writes(make: Callable[[RequestOptions, str], _Writer]) -> Reader:
    """The stream of an answer: thoughts first, then the text, then a call."""

    def write(pieces: Sequence[str]) -> None:
        writer = make(RequestOptions(pb.GenerateRequest(), stream=True), "1")
        chunks = [writer.chunk(_events(piece)[kind]) for kind in range(3) for piece in pieces]
        assert all(chunks[len(pieces) : -len(pieces)])
        assert writer.end(_FINAL)
        text = encodable("".join(pieces))
        call = chat_pb2.ToolCall(id="1", name="search", arguments=text)
        assert writer.whole(pb.Final(text=text, reasoning=text, tool_calls=[call]))

    return write


def _says(guard: GuardSettings) -> Reader:
    """To a client that reads sentences aloud."""

    async def opened() -> TextWriter:
        ledger = Ledger(make_plan([], 60_000), INVALID_SPAN, 0.0)
        return TextWriter(ledger, EventWriter(), guard_checks(guard, pb.GenerateRequest()), sentence_ends=True)

    def say(pieces: Sequence[str]) -> None:
        voice = asyncio.run(opened())
        modules = "services.gateway.answer.text_writer", "services.gateway.answer.stream_filter"
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(patch(f"{module}.give_way", lambda _: asyncio.sleep(0)))
            for piece in pieces:
                ran(voice.say(encodable(piece)))
            ran(voice.finish(chat_pb2.FINISH_REASON_STOP))

    return say


def _tried(pieces: Sequence[str]) -> None:
    tried, report = Tried(), Report(Decisions())
    for piece in pieces:
        tried.take(llm_pb2.GenerateResponse(text=encodable(piece)), report)
    assert tried.text


def _written(pieces: Sequence[str]) -> None:
    written = Output(PausedClock())
    for piece in pieces:
        written.add_text(piece)
        written.add_reasoning(piece, 1)
        written.add_calls([_events(piece)[2].tool_call], 1)
    assert written.whole_text
    assert written.calls


def _sdk(pieces: Sequence[str]) -> None:
    """A call that may go on at another gateway, read with callbacks."""
    resuming = Resuming(Outgoing(pb.GenerateRequest(), 60.0, ()))
    incoming = IncomingAnswer(Peer("localhost:1"), 60.0, resuming)
    callbacks = Callbacks(id, id, id, id)
    for event in _events_of(pieces):
        for each in incoming.events(pb.GenerateResponse(events=[event])):
            for _ in callbacks.notify(each):
                pass
    incoming.ended()


def _events_of(pieces: Sequence[str]) -> Iterator[pb.Event]:
    for piece in pieces:
        yield from _events(piece)
    yield pb.Event(final=_FINAL)


# Their sentences are found and looked through by readers that are fed with pieces of every size (`readers.py`).
WHOLE: Mapping[str, Reader] = {"answers that are looked through": _says(_GUARD)}
# These keep what they are given, whatever it says: fed with many pieces, and with long ones.
GATHERED: Mapping[str, Reader] = {
    "answers as chat completions": _writes(ChatWriter),
    "answers as completions": _writes(CompletionWriter),
    "answers as messages": _writes(MessageWriter),
    "answers as responses": _writes(ResponseWriter),
    "relayed chat": _relayed_chat,
    "chunks together": _together(lambda: RelayedChat(usage=True)),
    "events of a message together": _together(RelayedMessages),
    "events of a response together": _together(RelayedResponse),
    "relayed calls": _relayed_calls,
    "relayed message": _relayed_message,
    "relayed response": _relayed_response,
    "answers that are judged": _tried,
    "answers that are written": _written,
    "answers in the SDK": _sdk,
    "sentence ends for a client": _says(GuardSettings()),
}
