"""What becomes of errors by HTTP: a status, a code, and whether to come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.rpc import code_pb2

from services.gateway.admission.quota import QuotaExceeded
from services.gateway.errors import KeyUnknown, ModelUnavailable, ModelUnknown
from services.gateway.http.errors import (
    STATUSES,
    BodyLate,
    BodyTooLarge,
    BudgetTimeout,
    FirstTokenTimeout,
    NotOffered,
    SilenceTimeout,
    error_response,
    with_http_names,
)
from services.gateway.policies.slot import Shed
from services.gateway.upstream.call_errors import ContentRefused, ModelNotAtProvider, ProviderRefused
from services.runtime.errors import Faulty, Forbidden, InvalidInput, NotSupported


def test_every_canonical_code_has_a_status() -> None:
    named = set(code_pb2.Code.values()) - {code_pb2.OK}
    assert named == set(STATUSES)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidInput("n", "1", 2), 400, "invalid_value"),
        (KeyUnknown("no"), 401, "invalid_api_key"),
        (Forbidden("no"), 403, "forbidden"),
        (ModelUnknown("x", "m"), 404, "model_not_found"),
        (BodyLate("late"), 408, "request_timeout"),
        (BodyTooLarge("body", "at most 1 bytes", 2), 413, "request_too_large"),
        (QuotaExceeded("full", quota="requests"), 429, "rate_limit_exceeded"),
        (Shed("full"), 429, "overloaded"),
        (Faulty("broke"), 500, "faulty"),
        (KeyError("secret"), 500, "internal"),
        (NotOffered("none"), 501, "not_offered"),
        (NotSupported("count_tokens: no such method"), 501, "not_supported"),
        (NotSupported("seed: not supported by m", field="seed"), 400, "unsupported_parameter"),
        (ContentRefused("flagged"), 400, "content_policy_violation"),
        (ModelNotAtProvider("no such model"), 404, "model_not_found"),
        (ProviderRefused("no credential"), 502, "provider_refused"),
        (ModelUnavailable("gone"), 503, "model_unavailable"),
        (FirstTokenTimeout("late"), 504, "first_token_timeout"),
        (SilenceTimeout("late"), 504, "silence_timeout"),
        (BudgetTimeout("late"), 504, "budget_timeout"),
    ],
)
def test_each_error_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    response = error_response(error)
    assert (response.status, response.code) == (status, code)
    assert "secret" not in response.message
    assert response.openai()["error"].keys() == {"message", "type", "param", "code"}


def test_a_field_goes_by_the_name_that_the_caller_knows() -> None:
    response = error_response(InvalidInput("sampling.temperature", "0 to 2", 3))
    assert (response.param, response.message) == ("temperature", "temperature: 0 to 2, got 3")
    lacking = error_response(NotSupported("sampling.seed: not supported by m", field="sampling.seed"))
    assert (lacking.param, lacking.message) == ("seed", "seed: not supported by m")


def test_a_refusal_says_when_to_come_back() -> None:
    headers = dict(error_response(QuotaExceeded("full", retry_delay_s=1.2, quota="requests")).headers())
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (b"2", b"1200")
    assert headers[b"x-ratelimit-remaining-requests"] == b"0"
    assert b"x-should-retry" not in headers
    for left, shown in (("500", b"500"), ("-3", b"0")):
        few = error_response(QuotaExceeded("few", retry_delay_s=1.2, quota="tokens", left=left))
        assert dict(few.headers())[b"x-ratelimit-remaining-tokens"] == shown


@pytest.mark.parametrize(
    "error", [BudgetTimeout("late"), Faulty("broke"), NotOffered("none"), ProviderRefused("no"), KeyError("secret")]
)
def test_errors_that_would_repeat_have_should_retry_false(error: Exception) -> None:
    assert dict(error_response(error).headers())[b"x-should-retry"] == b"false"


def test_earlier_decisions_of_policies_are_in_the_error() -> None:
    response = error_response(ModelUnavailable("gone", trace_id="1" * 32, decisions='[{"policy":"retry"}]'))
    assert response.openai()["hedgerow"] == {"trace_id": "1" * 32, "decisions": [{"policy": "retry"}]}


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("images", "image_url"),
        ("audio", "input_audio"),
        ("messages[3].parts[1].image", "messages[3].content[1].image"),
        ("messages[3].role", "messages[3].role"),
    ],
)
def test_a_refusal_of_the_contract_has_the_name_that_a_caller_knows(field: str, name: str) -> None:
    refused = InvalidInput(field, "none", 1)
    response = error_response(with_http_names(refused))
    assert (response.param, response.message) == (name, f"{name}: none, got 1")
    assert refused.metadata["field"] == field, "the original error is not changed, because other callers may share it"


def test_methods_without_a_conversation_say_it_as_coheres_and_voyages_clients_read_it() -> None:
    response = error_response(InvalidInput("query", "text", "none"))
    said = "query: text, got none"
    assert response.for_cohere_and_voyage() == {**response.openai(), "message": said, "detail": said}
    listed = [{"loc": ["body", "documents"], "msg": "Field required"}]
    own = {"detail": listed, "message": "Field required"}
    assert replace(response, provider_error=own, provider_api="rerank").for_cohere_and_voyage() == {"error": own, **own}
