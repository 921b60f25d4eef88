"""Attributes of a generation's span."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from services.llm import genai
from services.llm.engine import Chunk, Finish, FinishReason, Message, Model, Request, Sampling, Usage

MODEL = Model("demo-llm", "vllm", 2048, 512, "off", True)
NAMES = [name for name, value in vars(genai).items() if isinstance(value, str) and value.startswith("gen_ai.")]


@pytest.mark.parametrize("name", NAMES)
def test_the_names_are_those_of_the_installed_conventions(name: str) -> None:
    assert getattr(genai, name) == getattr(gen_ai_attributes, f"GEN_AI_{name}")


def test_a_generation_is_described_without_a_word_of_it() -> None:
    now = 10.0
    span = TracerProvider().get_tracer("test").start_span("Generate")
    request = Request((Message("user", "a secret question"),), Sampling(temperature=0.0, max_tokens=9, seed=1))
    recorder = genai.Recorder(span, MODEL, request, clock=lambda: now)
    now = 10.25
    recorder.record(Chunk("a secret", 2))
    now = 11.0
    recorder.record(Chunk(" answer", 1, Finish(FinishReason.STOP, Usage(5, 3, 4, 8, 2), queue_ms=1.5)))
    assert isinstance(span, ReadableSpan)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "demo-llm",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 1,
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.response.model": "demo-llm",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "hedgerow.llm.drafted_tokens": 8,
        "hedgerow.llm.accepted_tokens": 2,
        "hedgerow.llm.queue_ms": 1.5,
    }
