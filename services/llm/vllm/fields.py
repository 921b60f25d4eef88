"""Fields of vLLM's own server that the contract does not have, out of a caller's own words.

Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server/#extra-parameters_1
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from services.llm.engine import Request
from services.runtime.errors import InvalidInput, shorten

_MOST = 1_000  # of one list
_Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=_MOST)]
_Tokens = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=_MOST)]
_SAMPLING: Mapping[str, TypeAdapter[Any]] = {
    "allowed_token_ids": TypeAdapter(_Tokens),
    "bad_words": TypeAdapter(_Words),
    "include_stop_str_in_output": TypeAdapter(bool),
    "skip_special_tokens": TypeAdapter(bool),
    "spaces_between_special_tokens": TypeAdapter(bool),
}
_TEMPLATE: Mapping[str, TypeAdapter[Any]] = {
    "chat_template_kwargs": TypeAdapter(Annotated[dict[str, JsonValue], Field(max_length=32)]),
    "reasoning_effort": TypeAdapter(Annotated[str, Field(pattern="^[a-z]{1,16}$")]),
}
# Values, as JSON, that say what is so with this engine; others are refused.
_AS_IT_IS: Mapping[str, str] = {
    "add_generation_prompt": "true",
    "add_special_tokens": "false",
    "continue_final_message": "false",
    "echo": "false",
    "include_reasoning": "true",
    "length_penalty": "1.0",
    "mm_payload": '"tensors"',
    "priority": "0",
    "use_beam_search": "false",
    "watermarking": "false",
}
TAKEN = frozenset({*_SAMPLING, *_TEMPLATE, *_AS_IT_IS})
# Arguments of a chat template, and of what vLLM renders it with, that are ours to say.
_OURS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "messages",
        "model_config",
        "return_dict",
        "tokenize",
        "tokenizer",
        "tools",
    }
)
_MOST_BYTES = 8_192  # of one field


@dataclass(frozen=True, slots=True)
class VllmFields:
    """`sampling`: arguments of vLLM's `SamplingParams`; `template`: of the model's chat template."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)


def fields(request: Request) -> VllmFields:
    """The vLLM fields of a request. Raises InvalidInput for a value that vLLM's server would refuse."""
    untranslated = request.original.untranslated if request.original else {}
    sampling = {name: _read(name, untranslated[name], kind) for name, kind in _SAMPLING.items() if name in untranslated}
    template = {name: _read(name, untranslated[name], kind) for name, kind in _TEMPLATE.items() if name in untranslated}
    for name, so in _AS_IT_IS.items():
        given = untranslated.get(name, so)
        if len(given) > _MOST_BYTES or json.loads(given) != json.loads(so):
            raise InvalidInput(name, f"{so}, with this engine", shorten(given))
    arguments = template.pop("chat_template_kwargs", {})
    if effort := template.get("reasoning_effort"):  # as vLLM's server has it: some templates ask for this one alone
        template["enable_thinking"] = effort != "none"
    for name in arguments:
        if name in _OURS:
            raise InvalidInput(f"chat_template_kwargs.{name}", "none that the engine itself sets", "one")
    return VllmFields(sampling, {**template, **arguments})


def _read(name: str, given: str, kind: TypeAdapter[Any]) -> Any:
    if len(given) > _MOST_BYTES:
        raise InvalidInput(name, f"at most {_MOST_BYTES} bytes", f"{len(given)} bytes")
    try:
        return kind.validate_json(given, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, (name, *problem["loc"])))
        raise InvalidInput(place, problem["msg"], shorten(given)) from None
