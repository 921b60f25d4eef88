"""Span attributes of a generation: OpenTelemetry's GenAI conventions, without any text of prompt or answer.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ (still in development, so the names are defined
here and not imported from a package that may drop them; a test compares them with the installed conventions).
"""

from __future__ import annotations

import time
from typing import Final

from opentelemetry.trace import Span

from services.llm.engine import Chunk, Finish, Model, Request
from services.runtime.deadline import Clock

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"  # seconds
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_CREATION_INPUT_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"

# Not in the conventions.
DRAFTED_TOKENS: Final = "hedgerow.llm.drafted_tokens"
ACCEPTED_TOKENS: Final = "hedgerow.llm.accepted_tokens"
QUEUE_MS: Final = "hedgerow.llm.queue_ms"


class Recorder:
    """Writes one generation to one span, as its chunks pass by."""

    def __init__(self, span: Span, model: Model, request: Request, clock: Clock = time.monotonic):
        self._span, self._model, self._clock = span, model, clock
        self._started, self._first = clock(), True
        sampling = request.sampling
        optional = {
            REQUEST_TEMPERATURE: sampling.temperature,
            REQUEST_TOP_P: sampling.top_p,
            REQUEST_MAX_TOKENS: sampling.max_tokens,
            REQUEST_SEED: sampling.seed,
        }
        span.set_attributes({name: value for name, value in optional.items() if value is not None})
        attributes = {OPERATION_NAME: request.method or "chat", PROVIDER_NAME: model.engine, REQUEST_MODEL: model.name}
        span.set_attributes({**attributes, REQUEST_STREAM: not request.method})

    def record(self, chunk: Chunk) -> None:
        """Record a chunk on its way to the caller."""
        if self._first and chunk.tokens:
            self._first = False
            self._span.set_attribute(RESPONSE_TIME_TO_FIRST_CHUNK, self._clock() - self._started)
        if chunk.finish:
            self._finished(chunk.finish)

    def _finished(self, finish: Finish) -> None:
        usage = finish.usage
        self._span.set_attributes(
            {
                RESPONSE_MODEL: self._model.name,
                RESPONSE_FINISH_REASONS: [finish.reason.value],
                USAGE_INPUT_TOKENS: usage.prompt_tokens,
                USAGE_OUTPUT_TOKENS: usage.completion_tokens,
                USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_prompt_tokens,
                USAGE_CACHE_CREATION_INPUT_TOKENS: usage.cache_write_tokens,
                DRAFTED_TOKENS: usage.drafted_tokens,
                ACCEPTED_TOKENS: usage.accepted_tokens,
            }
        )
        if finish.queue_ms is not None:
            self._span.set_attribute(QUEUE_MS, finish.queue_ms)
