"""Refusals of providers: translated, and unchanged for callers of the provider's own API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.errors import EngineDown, RequestRefused
from services.llm.providers.errors import to_error, unreachable
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError, TooLate

KEY = 'sk-"secret"'
PROBLEM = {"type": "invalid_request_error", "code": "unknown_parameter", "param": "field", "message": "No such field."}


def refused(body: Any, status: int = 400, key: str = KEY) -> RequestRefused:
    error = to_error(status, {}, body if isinstance(body, str) else json.dumps(body), key)
    assert isinstance(error, RequestRefused)
    return error


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_caller_of_the_providers_api_gets_the_providers_error(status: int) -> None:
    error = refused({"error": {**PROBLEM, "details": {"at": 3}}, "request_id": "7"}, status)
    error.include_provider_error("messages")
    assert error.metadata["provider_api"] == "messages"
    assert error.metadata["provider_status"] == str(status)
    assert json.loads(error.metadata["provider_error"]) == {**PROBLEM, "details": {"at": 3}}
    assert error.message == f"field: what the provider takes (No such field.), got HTTP {status}"


def test_other_callers_are_not() -> None:
    assert not any(name.startswith("provider_") for name in refused({"error": PROBLEM}).metadata)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"id": "7", "message": "too many documents"}, "too many documents", id="Cohere"),
        pytest.param({"detail": "Model x is not supported."}, "Model x is not supported.", id="Voyage"),
        pytest.param({"detail": [{"loc": ["body"], "msg": "no"}]}, '[{"loc":["body"],"msg":"no"}]', id="FastAPI"),
        pytest.param({"error": "batch > 32", "error_type": "Validation"}, "batch > 32", id="TEI"),
        pytest.param({"message": "empty", "code": 413, "type": "Validation"}, "empty", id="TEI, as OpenAI"),
    ],
)
def test_a_body_without_an_error_object_is_the_error(body: dict[str, Any], said: str) -> None:
    error = refused(body, 422)
    error.include_provider_error("rerank")
    assert json.loads(error.metadata["provider_error"]) == {**body, "message": said}
    assert error.message == f"request: what the provider takes ({said}), got HTTP 422"


def test_a_plain_text_says_why_as_an_error_object_does() -> None:
    """Text Embeddings Inference of a body that lacks a field."""
    said = "Failed to deserialize the JSON body into the target type: missing field `texts` at line 1 column 14"
    error = to_error(422, {"content-type": "text/plain; charset=utf-8"}, f"{said}\n{KEY}", KEY)
    assert isinstance(error, RequestRefused)
    error.include_provider_error("rerank")
    assert json.loads(error.metadata["provider_error"]) == {"message": f"{said}\n…"}
    assert error.message == f"request: what the provider takes ({said} …), got HTTP 422"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"error": {"code": 500, "message": "input is too large\nto process", "type": "server_error"}},
            "input is too large to process",
        ),
        ({"detail": f"worker died {KEY}"}, "worker died …"),
        ({"error": {"message": "x" * 400}}, f"{'x' * 160}… (400 characters)"),
    ],
    ids=["llama.cpp", "FastAPI", "long"],
)
def test_a_broken_provider_is_quoted_to_the_caller_and_to_no_log(body: dict[str, Any], said: str) -> None:
    error = to_error(500, {}, json.dumps(body), KEY)
    assert (type(error), error.message) == (EngineDown, f"the provider answered HTTP 500: {said}")
    assert error.outline == "the provider answered HTTP 500"


@pytest.mark.parametrize(
    "body", ["", "<html>500</html>", "upstream reset: 10.0.0.3:80", '{"error": {"message": ""}}', "[]"]
)
def test_a_page_of_a_broken_provider_stays_here(body: str) -> None:
    error = to_error(503, {"content-type": "text/plain"}, body, KEY)
    assert (error.message, error.outline) == ("the provider answered HTTP 503",) * 2


@pytest.mark.parametrize(
    "body", ["<html>", "[]", '["unexpected"]', '{"error": ""}', '{"error": {}}', "null", "7", "[" * 16_000]
)
def test_a_body_that_is_no_api_error_is_not_passed_on(body: str) -> None:
    error = refused(body)
    error.include_provider_error("chat_completions")
    assert not any(name.startswith("provider_") for name in error.metadata)


def test_the_credential_stays_here_however_it_is_written() -> None:
    error = refused({"error": {**PROBLEM, "message": f"{KEY} may not", "details": {"key": KEY}}})
    error.include_provider_error("chat_completions")
    shown = json.dumps(dict(error.metadata)) + error.message
    assert "secret" not in shown
    assert json.loads(error.metadata["provider_error"])["message"] == "… may not"


def test_an_error_too_long_for_a_trailer_is_shortened() -> None:
    error = refused({"error": {**PROBLEM, "message": "long " * 200, "details": ["x" * 3_000]}})
    error.include_provider_error("chat_completions")
    own = json.loads(error.metadata["provider_error"])
    assert own == {**PROBLEM, "message": f"{('long ' * 80)}… (1000 characters)"}
    error = refused({"error": {**PROBLEM, "code": "x" * 4_000}})
    error.include_provider_error("chat_completions")
    assert "provider_error" not in error.metadata


@pytest.mark.parametrize(("left_s", "kind"), [(0.0, TooLate), (0.001, TooLate), (0.1, EngineDown)])
def test_an_end_that_a_timer_makes_a_little_early_is_that_of_the_time_and_not_the_providers(
    left_s: float, kind: type[ServiceError]
) -> None:
    assert type(unreachable(TimeoutError(), Deadline(left_s, lambda: 0.0), reached=True)) is kind
