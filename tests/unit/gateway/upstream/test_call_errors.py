"""The errors of failed calls."""

from __future__ import annotations

import grpc
import pytest

from services.gateway.upstream.call_errors import (
    AnswerTooLarge,
    ContentRefused,
    ImageRefused,
    ModelNotAtProvider,
    ProviderRefused,
    Refused,
    translate,
)
from services.llm import errors as llm
from services.runtime.errors import Exhausted, Faulty, Misconfigured, ServiceError, TooLate, Unavailable
from services.vision.errors import ImageRefused as VisionRefused
from tests.unit.gateway.upstream.scripted_call import failed


@pytest.mark.parametrize(
    ("code", "means"),
    [
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.FAILED_PRECONDITION, Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, TooLate),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Exhausted),
        (grpc.StatusCode.INVALID_ARGUMENT, Refused),
        (grpc.StatusCode.INTERNAL, Faulty),
        (grpc.StatusCode.UNKNOWN, Faulty),
        (grpc.StatusCode.DATA_LOSS, Faulty),
    ],
)
def test_each_code_has_a_meaning(code: grpc.StatusCode, means: type[ServiceError]):
    assert type(translate(failed(code), "llm")) is means


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        (llm.ProviderRefused("the provider rejects the credential"), ProviderRefused),
        (llm.ModelNotAtProvider("the provider does not know the model x"), ModelNotAtProvider),
    ],
)
def test_a_provider_that_is_set_up_wrongly_is_known_as_one(original: Misconfigured, kind: type[Misconfigured]):
    error = translate(failed(grpc.StatusCode.FAILED_PRECONDITION, original.message, original), "big")
    assert (type(error), error.reason, error.retryable) == (kind, original.reason, False)
    assert error.message == f"big: FAILED_PRECONDITION: {original.message}"


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        (VisionRefused("images[0].data", "a PNG, JPEG, WebP, GIF or AVIF", "text"), ImageRefused),
        (llm.ContentRefused("request", "flagged", 403), ContentRefused),
        (llm.AnswerTooLarge(1_024, "input", "send fewer inputs"), AnswerTooLarge),  # for which the model has worked
    ],
)
def test_the_refusal_of_a_service_keeps_its_type_and_reason_for_the_caller(
    original: ServiceError, kind: type[ServiceError]
):
    error = translate(failed(grpc.StatusCode.INVALID_ARGUMENT, original.message, original), "big")
    assert type(error) is kind
    assert (error.reason, error.message, error.metadata) == (original.reason, original.message, original.metadata)


def test_a_stream_that_was_reset_on_its_way_is_no_fault_of_the_service():
    reset = "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))"
    assert type(translate(failed(grpc.StatusCode.INTERNAL, reset), "llm")) is Unavailable


def test_a_failure_keeps_the_words_of_a_provider_apart_from_its_outline():
    original = Unavailable("HTTP 500: too large", outline="HTTP 500")
    error = translate(failed(grpc.StatusCode.UNAVAILABLE, original.message, original), "llm")
    assert (error.message, error.outline) == ("llm: UNAVAILABLE: HTTP 500: too large", "llm: UNAVAILABLE: HTTP 500")
