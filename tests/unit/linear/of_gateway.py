"""What the gateway reads of callers and of models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from hedgerow.chat.v1 import chat_pb2
from services.gateway import permissions
from services.gateway.admission import original, pattern
from services.gateway.answer import asked, judge
from services.gateway.answer.stages import guard
from services.gateway.guard import injection
from services.gateway.guard.denied import Denied
from services.gateway.guard.screen import Screen
from services.gateway.hits import kinds
from services.gateway.http import fields
from services.gateway.http.relayed_chat import RelayedChat
from services.gateway.http.relayed_messages import RelayedMessages
from services.gateway.http.sse import compact
from services.gateway.prompt import diet, protected, window
from services.runtime import complexity, strict_json
from services.runtime.security.credentials import SECRETS
from services.runtime.security.personal_data import PERSONAL
from tests.unit.linear.reader import Reader, whole

_DENIED = Denied(("project titan", "worse"), (r"\bx[a-z ]{1,100}y\b",), 1_000)


def _screened(pieces: Sequence[str]) -> None:
    screen = Screen((*SECRETS, *PERSONAL), _DENIED)
    for piece in pieces:
        screen.feed(piece)
    screen.close()


@lru_cache(1_024)  # what is measured is the reader: pieces of one character are the same again
def _chunk(piece: str) -> bytes:
    call = {"index": 0, "function": {"arguments": piece}}
    choice = {"delta": {"content": piece, "tool_calls": [call]}, "logprobs": {"content": [{"token": piece}]}}
    return compact({"id": "1", "choices": [choice]})


@lru_cache(1_024)
def _deltas(piece: str) -> Sequence[bytes]:
    deltas = ({"type": "text_delta", "text": piece}, {"type": "citations_delta", "citation": piece})
    return [compact({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in deltas]


def _relayed(pieces: Sequence[str]) -> None:
    relayed = RelayedChat(usage=True)
    for piece in pieces:
        relayed.gather([_chunk(piece)])
    relayed.gather([compact({"choices": [{"finish_reason": "stop"}]})])
    assert relayed.whole()


def _relayed_message(pieces: Sequence[str]) -> None:
    relayed = RelayedMessages()
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    relayed.gather(map(compact, ({"type": "message_start", "message": {}}, block)))
    for piece in pieces:
        relayed.gather(_deltas(piece))
    relayed.gather([compact({"type": "message_delta", "delta": {}})])
    assert relayed.whole()


def _permitted(text: str) -> None:
    """A place of a caller's choice, and a field of it with a text of the caller's."""
    permissions.needed(text, "1")
    permissions.needed(f"{text}]", json.dumps({"type": text, "source": {"type": text}}))
    original.refuse_left(
        chat_pb2.Original(untranslated={f"{text.encode(errors='replace').decode()}]": "1"}), ("other",)
    )


def _arguments(text: str) -> None:
    """Where a number has been hidden, as what is JSON and what is not."""
    for before in (f'{{"a": 1, "b": [{text}', json.dumps({"a": 1, "b": text})):
        guard._as_json(before, before.replace('"a": 1', '"a": [card 1]', 1))


def _json(text: str) -> None:
    """As it stands, where most texts are no JSON, and as a name and a value in an array that is."""
    quoted = json.dumps(text)
    strict_json.loads(f'[{{{quoted}: {quoted}}}, "\\u0041"]')
    strict_json.loads(text)


WHOLE: Mapping[str, Reader] = {
    "arguments of calls": whole(_arguments),
    "complexity": whole(complexity.classify),
    "diet": whole(diet.diet),
    "fields of requests": whole(lambda text: fields.parse(json.dumps({"messages": [text]}).encode())),
    "kinds of questions": whole(lambda text: kinds.kinds(kinds.looked_at([text]))),
    "permissions": whole(_permitted),
    "pieces for injections": whole(lambda text: list(injection.pieces(text))),
    "results of tools": whole(lambda text: asked.as_data("search", text)),
    "sizes of patterns": whole(pattern.size),
    "strict JSON": whole(_json),
    "the end of a text": whole(lambda text: window.shortened(text, 4_096)),
    "verdicts of a judge": whole(judge.verdict),
    "protected": whole(lambda text: list(protected.pieces(text))),
}
STREAMED: Mapping[str, Reader] = {
    "screen": _screened,
    "relayed chat": _relayed,
    "relayed message": _relayed_message,
}
