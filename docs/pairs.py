"""Writes the table of fields by pair of APIs in `http.md`, from the published request schemas and from what the gateway
and the models' services do with each field. Run it with `make docs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.labels import replaced
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.http.chat_request import read_chat
from services.gateway.http.fields import parse
from services.gateway.http.messages_request import read_messages
from services.gateway.http.original import original
from services.llm import anthropic_wire, features, openai_wire, untranslated
from services.llm.engine import Feature, Model, Request
from services.llm.translate import to_request
from services.llm.vllm_fields import TAKEN, fields
from services.runtime.errors import InvalidInput, NotSupported
from tests import published

PAGE = Path(__file__).with_name("http.md")
HEAD = "| a field of | | to chat completions | to Messages | to vLLM by folder |"
_ASKED: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
_LIMITED = {**_ASKED, "max_tokens": 9}
_MODES = {"model", "messages", "stream", "stream_options"}  # of every request
Body = Mapping[str, Any]


def main() -> None:
    PAGE.write_text(render(PAGE.read_text()))
    print(f"{PAGE.name}: the fields of both APIs")


def render(page: str) -> str:
    """The page with its table as it should be."""
    return replaced(page, HEAD, [*rows()], PAGE.name)


def rows() -> Iterator[str]:
    """Fields that have the same fate, together."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Messages
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Chat

    for name, schema, api, asked in (
        ("chat completions", Chat, "chat", _ASKED),
        ("Messages", Messages, "messages", _LIMITED),
    ):
        fates: dict[tuple[str, ...], list[str]] = {}
        for field, bodies in _by_field(schema, asked).items():
            fates.setdefault(tuple(_fate(api, to, field, bodies) for to in _TO), []).append(f"`{field}`")
        for fate, found in sorted(fates.items(), key=lambda each: -len(each[1])):
            yield f"| {name} | {', '.join(found)} | {' | '.join(fate)} |"


def _by_field(schema: type, asked: Body) -> dict[str, list[Body]]:
    """Requests with each field, which says something in each."""
    found: dict[str, list[Body]] = {}
    for each in published.fields(schema, asked):
        field = each.place.partition(".")[0].partition("[")[0]
        if field not in _MODES and each.body[field] not in ({}, []):
            found.setdefault(field, []).append(each.body)
    return found


def _fate(api: str, to: str, field: str, bodies: list[Body]) -> str:
    fates = {_of_value(api, to, field, body) for body in bodies}
    return fates.pop() if len(fates) == 1 else f"by its value: {', '.join(sorted(fates))}"


def _of_value(api: str, to: str, field: str, body: Body) -> str:
    try:
        request = _read(api, {**_beside(field), **body})
        if api == to:
            return "as it came"
        model, check = _TO[to]
        features.check(request, model)
        untranslated.check(request.original, model)
        check(request)
    except (InvalidInput, NotSupported):
        return "refused"
    assert request.original
    lost = any(place.partition(".")[0] == field for place in request.original.untranslated.keys() - model.takes)
    return "left out" if lost else "translated"


def _beside(field: str) -> Body:
    return {"logprobs": True} if field == "top_logprobs" else {}


def _read(api: str, body: Body) -> Request:
    data = json.dumps(body).encode()
    given = parse(data)
    read, known = (
        (read_chat, chat_pb2.API_CHAT_COMPLETIONS) if api == "chat" else (read_messages, chat_pb2.API_MESSAGES)
    )
    own = read(given, {}, ["m"]).request
    asked = llm_pb2.GenerateRequest(messages=own.messages, sampling=own.sampling, tools=own.tools)
    if own.HasField("response_format"):
        asked.response_format.CopyFrom(own.response_format)
    asked.original.CopyFrom(original(known, data, given, {}))
    return to_request(asked)


_ALL = frozenset(Feature)
_MESSAGES_HAS = frozenset({Feature.TOOLS, Feature.IMAGES, Feature.TOP_K})
_TO: Mapping[str, tuple[Model, Callable[[Request], object]]] = {
    "chat": (
        Model("m", "openai", 0, 0, "", False, features=_ALL),
        lambda request: openai_wire.to_body(request, "m", 9, "max_tokens"),
    ),
    "messages": (
        Model("m", "anthropic", 0, 0, "", False, features=_MESSAGES_HAS),
        lambda request: anthropic_wire.to_body(request, "m", 9),
    ),
    "vllm": (Model("m", "vllm", 0, 0, "", True, features=_ALL, takes=TAKEN), fields),
}

if __name__ == "__main__":
    main()
