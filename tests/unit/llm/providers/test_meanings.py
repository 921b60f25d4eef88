"""The errors that providers' refusals become, each in the shape in which its provider sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from services.llm.errors import (
    ContentRefused,
    ContextRefused,
    EngineBusy,
    EngineDown,
    MalformedOutput,
    ModelNotAtProvider,
    ProviderRefused,
    RequestRefused,
)
from services.llm.providers.errors import to_error
from services.runtime.errors import NotSupported, ServiceError

_OPENROUTER = {"reasons": ["violence"], "flagged_input": "…", "provider_name": "OpenAI", "model_slug": "openai/x"}
_AZURE = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}}


def _error(**said: Any) -> dict[str, Any]:
    return {"error": said}


_REFUSALS: Mapping[str, tuple[int, Any, type[ServiceError]]] = {
    "OpenRouter, flagged": (403, _error(code=403, message="Forbidden", metadata=_OPENROUTER), ContentRefused),
    "OpenRouter, refused": (403, _error(message="No.", metadata={"error_type": "refusal"}), ContentRefused),
    "OpenRouter, the key": (403, _error(code=403, message="Key limit exceeded"), ProviderRefused),
    "OpenRouter, the model": (400, _error(message="x/y is not a valid model ID"), ModelNotAtProvider),
    "OpenRouter, a picture": (404, _error(message="No endpoints found that support image input"), NotSupported),
    "OpenAI, flagged": (400, _error(code="invalid_prompt", message="… violating our usage policy."), ContentRefused),
    "OpenAI, policy": (400, _error(code="content_policy_violation", message="No."), ContentRefused),
    "OpenAI, quota": (429, _error(code="insufficient_quota", message="You exceeded …"), ProviderRefused),
    "OpenAI, rate": (429, _error(code="rate_limit_exceeded", message="Rate limit …"), EngineBusy),
    "OpenAI, length": (400, _error(code="context_length_exceeded", message="Too long."), ContextRefused),
    "OpenAI, the model": (404, _error(code="model_not_found", message="No `x` …"), ModelNotAtProvider),
    "OpenAI, its project": (403, _error(code="model_not_found", message="Project …"), ModelNotAtProvider),
    "OpenAI, the address": (404, _error(message="Invalid URL (POST /v2/chat)"), ModelNotAtProvider),
    "OpenAI, a stored item": (404, _error(message="Conversation with id 'conv_1' not found."), RequestRefused),
    "OpenAI, a thought": (404, _error(message="Item with id 'rs_1' not found. Items are …"), RequestRefused),
    "Azure, flagged": (400, _error(code="x", message="m", innererror=_AZURE), ContentRefused),
    "Azure, the filter": (400, _error(code="content_filter", message="m"), ContentRefused),
    "Azure, the model": (404, _error(code="DeploymentNotFound", message="m"), ModelNotAtProvider),
    "Anthropic, the model": (404, _error(type="not_found_error", message="model: x"), ModelNotAtProvider),
    "Anthropic, its account": (
        400,
        _error(type="invalid_request_error", message="Your credit balance is too low to access …"),
        ProviderRefused,
    ),
    "Anthropic, overloaded": (529, _error(type="overloaded_error", message="Overloaded"), EngineBusy),
    "Anthropic, size": (413, _error(type="request_too_large", message="m"), RequestRefused),
    "Gemini, the key": (400, [_error(code=400, message="m", details=[{"reason": "API_KEY_INVALID"}])], ProviderRefused),
    "Gemini, overloaded": (503, [_error(code=503, status="UNAVAILABLE", message="m")], EngineDown),
    "Groq, a call": (
        400,
        _error(message="Failed to call a function. …", type="invalid_request_error", code="tool_use_failed"),
        MalformedOutput,
    ),
    "Groq, an object": (400, _error(message="Failed to generate JSON. …"), MalformedOutput),
    "Bedrock, length": (400, {"message": "Input is too long for requested model."}, ContextRefused),
    "Bedrock, the model": (400, {"message": "The provided model identifier is invalid."}, ModelNotAtProvider),
    "Bedrock, rate": (429, {"message": "Too many requests", "__type": "ThrottlingException"}, EngineBusy),
    "Mistral, flagged": (403, {"message": "Request blocked by guardrail: violence"}, ContentRefused),
    "Mistral, the model": (400, {"type": "invalid_model", "message": "Invalid model: x"}, ModelNotAtProvider),
    "DeepSeek, flagged": (400, _error(message="Content Exists Risk"), ContentRefused),
    "DeepSeek, its account": (402, _error(message="Insufficient Balance"), ProviderRefused),
    "DeepSeek, the model": (400, _error(message="Model Not Exist"), ModelNotAtProvider),
    "Kimi, its account": (429, _error(type="exceeded_current_quota_error", message="…"), ProviderRefused),
    "Qwen, its account": (400, _error(code="Arrearage", message="Access denied …"), ProviderRefused),
    "xAI, flagged": (403, {"code": "x", "error": "Content violates usage guidelines."}, ContentRefused),
    "a page": (404, "<html>404</html>", ModelNotAtProvider),
    # Servers that repeat a request's texts: the caller's words are not those of the provider.
    "an echo": (400, _error(message="field x: got 'Your credit balance is too low'"), RequestRefused),
}


@pytest.mark.parametrize(("status", "body", "kind"), _REFUSALS.values(), ids=_REFUSALS)
def test_a_refusal_becomes_the_error_that_it_means(status: int, body: Any, kind: type[ServiceError]) -> None:
    assert type(to_error(status, {}, json.dumps(body), "", "x")) is kind


def test_a_model_that_the_provider_lacks_is_named_with_what_the_provider_says() -> None:
    error = to_error(404, {}, json.dumps({"error": {"message": "The model `x` does not exist."}}), "", "gpt-x")
    assert error.message == "the provider does not know the model gpt-x, or the address: The model `x` does not exist."
    assert error.outline == "the provider does not know the model gpt-x, or the address"


def test_gemini_says_in_its_error_when_to_come_back() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
    body = json.dumps([{"error": {"code": 429, "message": "Quota exceeded", "details": details}}])
    assert to_error(429, {}, body, "").retry_delay_s == 17
    assert to_error(429, {"retry-after": "2"}, body, "").retry_delay_s == 2
