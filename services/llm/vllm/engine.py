"""vLLM's `AsyncLLM` behind the seam."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from services.llm.config import LlmSettings
from services.llm.dialects.openai_request import to_tools
from services.llm.engine import Chunk, Constraint, Feature, Load, Message, Model, Progress, Request, Sampling, Tool
from services.llm.errors import BadEngineSettings, EngineBusy, EngineDown
from services.llm.size import characters, size
from services.llm.vllm import load
from services.llm.vllm.args import BOUNDED
from services.llm.vllm.constraints import Constraints, Trial
from services.llm.vllm.fields import TAKEN, VllmFields, fields
from services.llm.vllm.grammar_sandbox import Terms
from services.llm.vllm.messages import check_pictures, has_media, takes_picture, to_chat
from services.llm.vllm.params import (
    own_sampling,
    refusal,
    sampling_params,
    structured_outputs,
    template_refusal,
    unreadable_media,
)
from services.llm.vllm.parsers import Parsers, found
from services.llm.vllm.reading import UnreadableOutput, VllmReading
from services.llm.vllm.tally import StatsKeeper, TokenTally
from services.runtime.aside import aside
from services.runtime.deadline import Deadline
from services.runtime.errors import ContextExceeded, Unavailable

_POLL_S = 0.1
_STOP_S = 0.2
# A few generations before the first caller comes: whatever compiles or allocates on first use does so then.
_WORDS = "Repeat after me: one two three four five six seven eight. "
_SHORT = Request((Message("user", "Hello."),), Sampling(temperature=0, max_tokens=8))
# Repeats itself, so that prompt lookup finds something to propose; long enough for several blocks of key-value cache.
_LONG = Request((Message("user", _WORDS * 8),), Sampling(temperature=0, max_tokens=24))
_DRAWN = Request((Message("user", "Hello."),), Sampling(temperature=0.8, top_p=0.9, seed=1, max_tokens=8))
_OBJECT = Request(_SHORT.messages, Sampling(temperature=0, max_tokens=8), Constraint("json_object"))

_WARM_UP: tuple[tuple[str, tuple[Request, ...]], ...] = (
    ("a first token", (_SHORT,)),
    ("a long prompt", (_LONG,)),
    ("drawn tokens", (_DRAWN,)),
    ("a batch", (_SHORT, _LONG, _DRAWN, _SHORT)),
    ("constrained decoding", (_OBJECT,)),
)


class VllmEngine:
    """A vLLM engine, which runs in a process of its own and serves one model."""

    def __init__(self, engine: Any, stats: StatsKeeper, settings: LlmSettings):
        from vllm.renderers.params import TokenizeParams

        self._engine, self._stats = engine, stats
        self._default_max_tokens, self._max_pixels = settings.default_max_tokens, settings.vllm.max_pixels
        self._defaults = own_sampling(engine.vllm_config)
        self._model = _describe(engine, settings, self._defaults)
        # No limit here: ours can then say how long the prompt was. Special tokens are the template's business.
        self._tokenize = TokenizeParams(max_total_tokens=None, add_special_tokens=False)
        self._constraints = _constraints(engine, settings)
        self._parsers = Parsers(found(settings.vllm, engine.model_config, engine.get_tokenizer()), engine)

    @classmethod
    async def start(cls, settings: LlmSettings, progress: Progress) -> VllmEngine:
        """Load the model. Raises BadEngineSettings when vLLM refuses the settings."""
        stats = StatsKeeper()
        engine = await load.load(settings.vllm, stats.logger, progress)
        try:
            return cls(engine, stats, settings)
        except BadEngineSettings:
            engine.shutdown(_STOP_S)
            raise

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError

        self._parsers.check(request)
        own = fields(request)
        prompt = await self._prompt(request, own)
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt  # goes into the hash of its first block, and so into all others
        tokens = prompt["prompt_token_ids"]
        structured = await self._structured(request, deadline)
        most_tokens = min(self._model.context_tokens - len(tokens), self._model.max_tokens)
        reading, more = await self._reading(request, tokens)
        more = {**own.sampling, **more}
        params = sampling_params(request, self._defaults, self._default_max_tokens, most_tokens, structured, **more)
        tally = TokenTally(len(tokens), reading, request.sampling.top_logprobs)
        try:
            async with aclosing(self._engine.generate(prompt, params, uuid.uuid4().hex)) as outputs:
                async for output in outputs:
                    chunk = tally.add(output)
                    if chunk:
                        yield chunk
        except VLLMClientError as error:
            raise refusal(request, error) from None
        except GracefulHTTPError:
            raise EngineBusy("the engine's queue is full", retry_delay_s=1.0) from None
        except (VLLMServerError, UnreadableOutput) as error:
            if not tally.completion:
                raise EngineDown(f"the engine failed: {type(error).__name__}") from None
            yield tally.interrupted()

    async def count_tokens(self, messages: tuple[Message, ...], tools: tuple[Tool, ...], deadline: Deadline) -> int:
        request = Request(messages, tools=tools)
        shown, definitions, _ = await self._shown(request)
        return len((await self._render(request, shown, definitions, {}))["prompt_token_ids"])

    def describe(self) -> Model:
        return self._model

    def load(self) -> Load:
        return self._stats.load(self._engine.get_num_unfinished_requests())

    async def warm_up(self, progress: Progress) -> None:
        for name, requests in _WARM_UP:
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(self._drain(request))
            progress(f"warm-up: {name} in {(time.monotonic() - started) * 1e3:.0f} ms")

    async def wait_failed(self) -> str:
        while not self._engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(_POLL_S)
        return "vLLM's engine process ended"

    async def close(self) -> None:
        if self._constraints:
            await self._constraints.close()
        # Its engine process takes more than five seconds to go when asked, and has nothing to save. Not in a thread:
        # vLLM's reader, which runs in this loop, would take the end for a failure.
        self._engine.shutdown(_STOP_S)

    async def _drain(self, request: Request) -> None:
        async with aclosing(self.generate(request, Deadline.never())) as chunks:
            async for _ in chunks:
                pass

    async def _structured(self, request: Request, deadline: Deadline) -> Any:
        """vLLM's word for the request's constraint, once it is known to be one, and little work."""
        of_calls = partial(self._parsers.constraint, request)
        constraint = request.constraint or await aside(request.tenant, size((), request.tools), of_calls)
        if constraint is None:
            return None
        if self._constraints:
            await self._constraints.check(constraint, request.tenant, deadline)
        config, tokenizer = self._engine.vllm_config, self._engine.get_tokenizer()
        return await asyncio.to_thread(structured_outputs, constraint, config, tokenizer)

    async def _reading(self, request: Request, prompt: Sequence[int]) -> tuple[VllmReading, Mapping[str, Any]]:
        """See `Parsers.reading`, for which vLLM validates the conversation."""
        made = partial(self._parsers.reading, request, prompt)
        return await aside(request.tenant, size(request.messages, request.tools), made)

    async def _prompt(self, request: Request, own: VllmFields) -> Any:
        await check_pictures(request.messages, self._max_pixels, request.tenant)
        shown, tools, length = await self._shown(request)
        context = self._model.context_tokens
        most = self._engine.get_tokenizer().max_chars_per_token
        if length > (context - 1) * most:  # cannot fit, so do not spend seconds on counting its tokens
            raise ContextExceeded.of(context, -(-length // most), at_least=True)
        prompt = await self._render(request, shown, tools, own.template)
        tokens = len(prompt["prompt_token_ids"])
        if tokens >= context:  # at least one token to answer with
            raise ContextExceeded.of(context, tokens)
        return prompt

    async def _shown(self, request: Request) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        """The conversation and its tools as the chat template takes them, and how many characters they have."""

        def shown() -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
            messages, tools = self._parsers.shown(request.messages, request.tools, request.tool_choice)
            length = characters(messages) + len(request.prefix) + sum(len(tool.parameters) for tool in tools)
            return to_chat(messages, request.prefix, request.cache_salt), to_tools(tools), length

        return await aside(request.tenant, size(request.messages, request.tools), shown)

    async def _render(
        self, request: Request, shown: list[dict[str, Any]], tools: list[dict[str, Any]], own: Mapping[str, Any]
    ) -> Any:
        """The model's own chat template, then tokens: vLLM does both in a thread.

        A template that trims its messages also trims the prefix.
        """
        from vllm.exceptions import VLLMClientError
        from vllm.renderers.chat_utils import ChatTemplateResolutionError
        from vllm.renderers.params import ChatParams

        if self._engine.errored:
            raise Unavailable("the engine is down")
        begun = bool(request.prefix)
        template_options = {"add_generation_prompt": not begun, "continue_final_message": begun}
        chat = ChatParams(chat_template_kwargs={**own, **template_options, **({"tools": tools} if tools else {})})
        try:
            _, (prompt,) = await self._engine.renderer.render_chat_async([shown], chat, self._tokenize)
        except (VLLMClientError, ChatTemplateResolutionError) as error:  # the latter where there is no template
            raise template_refusal(error) from None
        except ValueError as error:
            raise (unreadable_media() if has_media(request.messages) else error) from None
        return prompt


async def start(settings: LlmSettings, progress: Progress) -> VllmEngine:
    """See `engines.py`."""
    return await VllmEngine.start(settings, progress)


def _constraints(engine: Any, settings: LlmSettings) -> Constraints | None:
    """The trials of constraints; None if vLLM compiles grammars in another way than the trial."""
    config = engine.vllm_config.structured_outputs_config
    if config.backend != BOUNDED:
        return None

    def terms() -> Terms:
        tokenizer = engine.get_tokenizer()
        terms = Terms(settings.constraints.cpu_ms / 1000, whitespace=not config.disable_any_whitespace)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            return terms
        size = max(engine.model_config.get_vocab_size(), len(tokenizer))
        return replace(terms, tokenizer=backend.to_str(), vocabulary=size, eos=tokenizer.eos_token_id)

    return Constraints(settings.constraints, Trial(terms))


def _describe(engine: Any, settings: LlmSettings, defaults: Mapping[str, Any]) -> Model:
    speculation = engine.vllm_config.speculative_config
    context, features = int(engine.model_config.max_model_len), _features(engine)
    return Model(
        name=settings.public_name,
        engine="vllm",
        context_tokens=context,
        max_tokens=min(settings.max_tokens_cap or context, context - 1),
        speculation=speculation.method if speculation else "off",
        continues=True,
        salts=True,
        features=features,
        takes=TAKEN,
        translates=takes_picture if Feature.IMAGES in features else None,
        default_sampling=Sampling(**defaults),
    )


def _features(engine: Any) -> frozenset[Feature]:
    features = {Feature.TOOLS, Feature.LOGPROBS, Feature.CHOICE, Feature.GRAMMAR}
    features |= {Feature.TOP_K, Feature.VLLM_SAMPLING}
    if engine.vllm_config.speculative_config is None:  # with which vLLM has no logits processors
        features.add(Feature.LOGIT_BIAS)
    processor = engine.renderer.mm_processor
    limits = processor.info.allowed_mm_limits if processor else {}
    media = {"image": Feature.IMAGES, "audio": Feature.AUDIO}
    return frozenset(features | {feature for name, feature in media.items() if limits.get(name)})
