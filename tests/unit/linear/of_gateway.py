"""What the gateway reads of callers and of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.gateway.admission import pattern
from services.gateway.answer import asked, judge
from services.gateway.guard import injection
from services.gateway.guard.denied import Denied
from services.gateway.guard.screen import Screen
from services.gateway.hits import kinds
from services.gateway.http.relayed_chat import RelayedChat
from services.gateway.http.relayed_messages import RelayedMessages
from services.gateway.http.sse import compact
from services.gateway.prompt import diet, protected, window
from services.runtime import complexity
from services.runtime.security.credentials import SECRETS
from services.runtime.security.personal_data import PERSONAL
from tests.unit.linear.reader import Reader, whole

_DENIED = Denied(("project titan", "worse"), (r"\bx[a-z ]{1,100}y\b",), 1_000)


def _screened(pieces: Sequence[str]) -> None:
    screen = Screen((*SECRETS, *PERSONAL), _DENIED)
    for piece in pieces:
        screen.feed(piece)
    screen.close()


def _relayed(pieces: Sequence[str]) -> None:
    relayed = RelayedChat(usage=True)
    for piece in pieces:
        call = {"index": 0, "function": {"arguments": piece}}
        choice = {"delta": {"content": piece, "tool_calls": [call]}, "logprobs": {"content": [{"token": piece}]}}
        relayed.gather([compact({"id": "1", "choices": [choice]})])
    relayed.gather([compact({"choices": [{"finish_reason": "stop"}]})])
    assert relayed.whole()


def _relayed_message(pieces: Sequence[str]) -> None:
    relayed = RelayedMessages()
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    relayed.gather(map(compact, ({"type": "message_start", "message": {}}, block)))
    for piece in pieces:
        for delta in ({"type": "text_delta", "text": piece}, {"type": "citations_delta", "citation": piece}):
            relayed.gather([compact({"type": "content_block_delta", "index": 0, "delta": delta})])
    relayed.gather([compact({"type": "message_delta", "delta": {}})])
    assert relayed.whole()


WHOLE: Mapping[str, Reader] = {
    "complexity": whole(complexity.classify),
    "diet": whole(diet.diet),
    "kinds of questions": whole(lambda text: kinds.kinds(kinds.looked_at([text]))),
    "pieces for injections": whole(lambda text: list(injection.pieces(text))),
    "results of tools": whole(lambda text: asked.as_data("search", text)),
    "sizes of patterns": whole(pattern.size),
    "the end of a text": whole(lambda text: window.shortened(text, 4_096)),
    "verdicts of a judge": whole(judge.verdict),
    "protected": whole(lambda text: list(protected.pieces(text))),
}
STREAMED: Mapping[str, Reader] = {
    "screen": _screened,
    "relayed chat": _relayed,
    "relayed message": _relayed_message,
}
