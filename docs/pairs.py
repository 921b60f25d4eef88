"""Writes `fields.csv`: the treatment of each request field by each API of a model, from the published request schemas,
the gateway and the llm services. A slash separates treatments that depend on the value. Run it with `make docs`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.messages_request import read_messages
from services.gateway.http.dialects.original import original
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.fields import parse
from services.gateway.http.request_options import RequestOptions
from services.llm import features, untranslated
from services.llm.dialects import anthropic_request, openai_request, responses_request
from services.llm.dialects.counterparts import EFFORTS, OPENAIS, names_user
from services.llm.engine import Feature, Model, Request
from services.llm.translate import to_request
from services.llm.vllm.fields import TAKEN, fields
from services.runtime.errors import InvalidInput, NotSupported
from tests import published

PAGE = Path(__file__).with_name("fields.csv")
_NAMES = {"chat": "chat completions", "responses": "Responses", "messages": "Messages", "vllm": "vLLM"}
_ASKED: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
_LIMITED = {**_ASKED, "max_tokens": 9}
_RESPONSE: Mapping[str, Any] = {"model": "m", "input": "?"}
_MODES = {"model", "messages", "input", "stream", "stream_options"}  # of every request
_TOOLS = {"tools": [{"type": "function", "name": "x"}]}
# Fields without which a field has no effect.
_BESIDE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("chat", "top_logprobs"): {"logprobs": True},
    ("responses", "parallel_tool_calls"): _TOOLS,
    ("responses", "tool_choice"): _TOOLS,
}
# Values with an effect, of the contract's fields for which 1 has none.
_BY_GRPC: Mapping[str, Any] = {
    "ignore_eos": True,
    "logit_bias": [chat_pb2.LogitBias(token=1, bias=1)],
    "stop": ["x"],
    "stop_token_ids": [1],
}
_FORMS: Mapping[str, Any] = {
    "json_schema": '{"type": "object"}',
    "regex": "a",
    "json_object": True,
    "choice": chat_pb2.Choice(values=["a"]),
    "grammar": 'start: "a"',
}
_READERS: Mapping[str, tuple[chat_pb2.Api, Callable[..., RequestOptions]]] = {
    "chat": (chat_pb2.API_CHAT_COMPLETIONS, read_chat),
    "responses": (chat_pb2.API_RESPONSES, read_response),
    "messages": (chat_pb2.API_MESSAGES, read_messages),
}
Body = Mapping[str, Any]


def main() -> None:
    PAGE.write_text(render())
    print(f"{PAGE.name}: the fields of each API")


def render() -> str:
    """The file as it should be."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("api", "field", *(f"to {name}" for name in _NAMES.values())))
    writer.writerows(rows())
    return file.getvalue()


def rows() -> Iterator[tuple[str, ...]]:
    """An API, a field of its requests, and its treatment for the models of each API."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Messages
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Chat
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Responses

    for api, schema, asked in (
        ("chat", Chat, _ASKED),
        ("responses", Responses, _RESPONSE),
        ("messages", Messages, _LIMITED),
    ):
        for field, bodies in _by_field(schema, asked).items():
            yield _NAMES[api], field, *(_fate(api, to, field, bodies) for to in _TO)
    for field, request in _by_grpc():
        yield "gRPC", field, *(_of_model(to, request) for to in _TO)


def _by_grpc() -> Iterator[tuple[str, Request]]:
    """Requests with each field of the contract that may change an answer."""
    said = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="?")
    for field in chat_pb2.Sampling.DESCRIPTOR.fields:
        sampling = chat_pb2.Sampling(**{field.name: _BY_GRPC.get(field.name, 1)})
        yield field.name, to_request(llm_pb2.GenerateRequest(messages=[said], sampling=sampling))
    for name, given in _FORMS.items():
        form = chat_pb2.ResponseFormat(**{name: given})
        yield f"response_format.{name}", to_request(llm_pb2.GenerateRequest(messages=[said], response_format=form))
    asked = llm_pb2.GenerateRequest(messages=[said], tools=[chat_pb2.Tool(name="x")])
    yield "tools", to_request(asked)
    asked.tool_choice.name = "x"
    yield "tool_choice", to_request(asked)
    asked.parallel_tool_calls = False
    yield "parallel_tool_calls", to_request(asked)


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
    return "/".join(sorted(fates))


def _of_value(api: str, to: str, field: str, body: Body) -> str:
    try:
        request = _read(api, {**_BESIDE.get((api, field), {}), **body})
    except (InvalidInput, NotSupported):
        return "refused"
    if api == to:
        return "forwarded"
    if (api, field) == ("chat", "n"):
        return "asked separately"
    assert request.original
    takes = _TO[to][0].takes
    lost = {
        place
        for place, given in request.original.untranslated.items()
        if takes.isdisjoint((place, f"{place}={given}"))
        and not (takes.issuperset(EFFORTS) and names_user(place, given))
    }
    fate = _of_model(to, request)
    return "omitted" if fate == "translated" and any(place.partition(".")[0] == field for place in lost) else fate


def _of_model(to: str, request: Request) -> str:
    model, check = _TO[to]
    try:
        features.check(request, model)
        untranslated.check(request.original, model)
        check(request)
    except (InvalidInput, NotSupported):
        return "refused"
    return "translated"


def _read(api: str, body: Body) -> Request:
    data = json.dumps(body).encode()
    given = parse(data)
    known, read = _READERS[api]
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
        Model("m", "openai", 0, 0, "", False, features=_ALL, takes=OPENAIS),
        lambda request: openai_request.to_body(request, "m", 9, "max_tokens"),
    ),
    "responses": (
        Model("m", "openai", 0, 0, "", False, features=_ALL, takes=OPENAIS),
        lambda request: responses_request.to_body(request, "m", 9),
    ),
    "messages": (
        Model("m", "anthropic", 0, 0, "", False, features=_MESSAGES_HAS, takes=EFFORTS),
        lambda request: anthropic_request.to_body(request, "m", 9),
    ),
    "vllm": (Model("m", "vllm", 0, 0, "", True, features=_ALL, takes=TAKEN), fields),
}

if __name__ == "__main__":
    main()
