"""Features that a request needs and the engine lacks are refused by name, before any work is done for it."""

from __future__ import annotations

from collections.abc import Iterator

from services.llm.engine import METHODS, Feature, Message, Model, Request, Sampling
from services.runtime.errors import NotSupported

_PARTS = {"image": Feature.IMAGES, "audio": Feature.AUDIO}
VLLM_FIELDS = ("min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids")
_CONSTRAINTS = {"choice": Feature.CHOICE, "grammar": Feature.GRAMMAR}


def check_api(request: Request, model: Model) -> None:
    """Raise NotSupported for a conversation where the model has none, and for a method that it does not have."""
    method = request.method
    if method and not model.reads(request):
        raise NotSupported(f"{method}: not supported by {model.name}", field="model")
    if not method and model.apis and METHODS.issuperset(model.apis):
        has = ", ".join(sorted(model.apis))
        raise NotSupported(f"messages: not supported by {model.name}, which has {has}", field="messages")


def check(request: Request, model: Model) -> None:
    """Raise NotSupported for what the engine cannot do."""
    check_messages(request.messages, model)
    for field, feature in _of_request(request):
        _check(field, feature, model)


def check_messages(messages: tuple[Message, ...], model: Model) -> None:
    """Raise `NotSupported` for a conversation that needs a feature which the model lacks."""
    for index, message in enumerate(messages):
        for field, feature in _of_message(message):
            _check(f"messages[{index}].{field}", feature, model)


def _of_request(request: Request) -> Iterator[tuple[str, Feature]]:
    if request.tools:
        yield "tools", Feature.TOOLS
    if request.sampling.top_logprobs is not None:
        yield "sampling.top_logprobs", Feature.LOGPROBS
    if request.sampling.logit_bias:
        yield "sampling.logit_bias", Feature.LOGIT_BIAS
    if request.sampling.top_k is not None:
        yield "sampling.top_k", Feature.TOP_K
    yield from ((f"sampling.{name}", Feature.VLLM_SAMPLING) for name in VLLM_FIELDS if _is_set(request.sampling, name))
    if request.constraint and request.constraint.kind in _CONSTRAINTS:
        yield f"response_format.{request.constraint.kind}", _CONSTRAINTS[request.constraint.kind]


def _of_message(message: Message) -> Iterator[tuple[str, Feature]]:
    if message.tool_calls:
        yield "tool_calls", Feature.TOOLS
    if message.role == "tool":
        yield "role tool", Feature.TOOLS
    for number, part in enumerate(message.parts):
        if part.kind in _PARTS:
            yield f"parts[{number}].{part.kind}", _PARTS[part.kind]


def _is_set(sampling: Sampling, name: str) -> bool:
    """Whether a field says something: a number may be 0, but False and no token say nothing."""
    return getattr(sampling, name) not in (None, ()) and getattr(sampling, name) is not False


def _check(field: str, feature: Feature, model: Model) -> None:
    if feature not in model.features:
        raise NotSupported(f"{field}: not supported by {model.name}", field=field)
