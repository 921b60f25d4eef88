"""Every field of the request that vLLM's own server takes does here what it does there, or is refused by name. The
fields are those of the installed vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.gateway.http.dialects.chat_request import read_chat
from services.gateway.http.dialects.original import original
from services.gateway.http.fields import parse
from services.llm import features, untranslated
from services.llm.engine import Feature, Model, Request
from services.llm.translate import to_request
from services.llm.vllm.fields import TAKEN, fields
from services.llm.vllm.params import sampling_params
from services.runtime.errors import InvalidInput, NotSupported
from tests import published

MODEL = Model("m", "vllm", 0, 0, "", True, features=frozenset(Feature), takes=TAKEN)
KNOWN: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
_TOOLS = [{"type": "function", "function": {"name": "x"}}]
# Fields that no answer depends on: whose a request is, how often tokens are counted, and names and notes of a form,
# which vLLM does not read.
_OF_NO_EFFECT = {
    "user",
    "response_format.json_schema.description",
    "response_format.json_schema.name",
    "response_format.json_schema.strict",
    "stream_options.continuous_usage_stats",
}
_MOST = 4_000  # tokens


def _asked(body: Mapping[str, Any]) -> Request:
    """The engine's request for an HTTP request with `body`."""
    data = json.dumps(body).encode()
    given = parse(data)
    own = read_chat(given, {}, ["m"]).request
    asked = llm_pb2.GenerateRequest(
        messages=own.messages,
        sampling=own.sampling,
        response_format=own.response_format,
        tools=own.tools,
        tool_choice=own.tool_choice if own.HasField("tool_choice") else None,
        parallel_tool_calls=own.parallel_tool_calls if own.HasField("parallel_tool_calls") else None,
        original=original(chat_pb2.API_CHAT_COMPLETIONS, data, given, {}),
    )
    request = to_request(asked)
    features.check(request, MODEL)
    untranslated.check(request.original, MODEL)
    fields(request)
    return request


def _ours(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters that vLLM samples with, and the arguments of its template."""
    own = fields(request)
    params = sampling_params(request, {}, None, _MOST, **own.sampling)
    return msgspec.structs.asdict(params), dict(own.template)


def _theirs(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same, of vLLM's server."""
    asked = _vllms()(**body)
    most = asked.max_completion_tokens or asked.max_tokens or _MOST
    params = asked.to_sampling_params(most, {})
    return msgspec.structs.asdict(params), dict(asked.build_chat_params(None, "auto").chat_template_kwargs)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """By name, null and what is empty are the same."""
    return {name: given for name, given in after.items() if (before.get(name) or None) != (given or None)}


@cache
def _vllms() -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest


def _in_context(body: Mapping[str, Any]) -> dict[str, Any]:
    """With what a field says nothing without."""
    beside = {"logprobs": True} if body.keys() & {"top_logprobs", "logprob_token_ids"} else {}
    tools = {"tools": _TOOLS} if body.keys() & {"tool_choice", "parallel_tool_calls"} else {}
    return {**tools, **beside, **body}


def _named(place: str, problem: Exception) -> bool:
    """Whether a refusal is about the field, what has it or something in it. An object's `type` is the object."""
    name, place = (each.removesuffix(".type") for each in (str(problem).partition(":")[0], place))
    name = name.removeprefix("sampling.")
    return name == place or place.startswith((f"{name}.", f"{name}[")) or name.startswith((f"{place}.", f"{place}["))


def _problem(field: published.Published) -> str:
    """What is wrong with what becomes of a field; empty: nothing."""
    body, top = _in_context(field.body), field.place.partition(".")[0].partition("[")[0]
    without = {name: given for name, given in body.items() if name != top}
    try:
        request = _asked(body)
    except (InvalidInput, NotSupported) as problem:
        return "" if _named(field.place, problem) else f"refused as {problem}"
    assert request.original
    dropped = {place: given for place, given in request.original.untranslated.items() if place not in TAKEN}
    if lost := [place for place, given in dropped.items() if not _is_default(place, json.loads(given))]:
        return f"dropped: {lost}" if not _OF_NO_EFFECT.issuperset(lost) else ""
    sampling, template = map(_changed, _ours(_asked(without)), _ours(request))
    if field.place != top or top in dropped or top in ("structured_outputs", "response_format", "tools", "tool_choice"):
        return ""  # read by the contract, or it would be dropped
    wanted = _changed_by_vllm(without, body)
    return "" if (sampling, template) == wanted else f"{(sampling, template)} in place of {wanted}"


def _changed_by_vllm(without: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    sampling, template = map(_changed, _theirs(without), _theirs(body))
    return {name: given for name, given in sampling.items() if name != "output_kind"}, template


def _is_default(place: str, given: Any) -> bool:
    found = _vllms().model_fields.get(place)
    if found is None or found.is_required():
        return False
    usual = found.get_default(call_default_factory=True)
    return usual == given or not (usual or given)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_field_of_vllms_server_is_honoured_or_refused_by_name() -> None:
    problems = {f"{each.place} {each.body}": _problem(each) for each in published.fields(_vllms(), KNOWN)}
    wrong = [f"{place}: {problem}" for place, problem in problems.items() if problem]
    assert not wrong, "\n".join(wrong)
    assert len(problems) > 100
