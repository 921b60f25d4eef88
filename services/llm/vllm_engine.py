"""vLLM's `AsyncLLM` behind the seam."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from services.llm import vllm_load
from services.llm.config import LlmSettings
from services.llm.constraints import Constraints, Trial
from services.llm.engine import Chunk, Finish, FinishReason, Load, Message, Model, Progress, Request, Usage
from services.llm.errors import EngineBusy, EngineDown
from services.llm.trial import Terms
from services.llm.vllm_args import BOUNDED
from services.llm.vllm_params import refusal, sampling_params, structured_outputs, template_refusal
from services.llm.vllm_stats import StatsKeeper
from services.llm.warmup import warm_up
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, Unavailable

_POLL_S = 0.1
_STOP_S = 0.2
_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class VllmEngine:
    """One vLLM engine, which runs in a process of its own and serves one model."""

    def __init__(self, engine: Any, stats: StatsKeeper, settings: LlmSettings):
        from vllm.renderers.params import ChatParams, TokenizeParams

        self._engine, self._stats = engine, stats
        self._model = _describe(engine, settings)
        self._default_max_tokens = settings.default_max_tokens
        self._defaults: dict[str, Any] = engine.model_config.get_diff_sampling_param()
        self._begin = ChatParams(chat_template_kwargs={"add_generation_prompt": True})
        self._go_on = ChatParams(chat_template_kwargs={"add_generation_prompt": False, "continue_final_message": True})
        # No limit here: ours can then say how long the prompt was. Special tokens are the template's business.
        self._tokenize = TokenizeParams(max_total_tokens=None, add_special_tokens=False)
        self._constraints = _constraints(engine, settings)

    @classmethod
    async def start(cls, settings: LlmSettings, progress: Progress) -> VllmEngine:
        """Load the model. Raises BadEngineSettings when vLLM refuses the settings."""
        stats = StatsKeeper()
        return cls(await vllm_load.load(settings.vllm, stats.logger, progress), stats, settings)

    async def generate(self, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
        from vllm.exceptions import GracefulHTTPError, VLLMClientError, VLLMServerError

        prompt = await self._prompt(request.messages, request.prefix)
        if request.cache_salt:
            prompt["cache_salt"] = request.cache_salt  # goes into the hash of its first block, and so into all others
        room = self._model.context_tokens - len(prompt["prompt_token_ids"])
        structured = await self._structured(request, deadline)
        most_tokens = min(room, self._model.max_tokens)
        params = sampling_params(request, self._defaults, self._default_max_tokens, most_tokens, structured)
        tally = _Tally(len(prompt["prompt_token_ids"]))
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
        except VLLMServerError as error:
            if not tally.completion:
                raise EngineDown(f"the engine failed: {type(error).__name__}") from None
            yield tally.interrupted()

    async def count_tokens(self, messages: tuple[Message, ...], deadline: Deadline) -> int:
        return len((await self._render(messages))["prompt_token_ids"])

    def describe(self) -> Model:
        return self._model

    def load(self) -> Load:
        return self._stats.load(self._engine.get_num_unfinished_requests())

    async def warm_up(self, progress: Progress) -> None:
        await warm_up(self, progress)

    async def wait_failed(self) -> str:
        while not self._engine.errored:  # noqa: ASYNC110 - vLLM tells nobody, so it has to be asked
            await asyncio.sleep(_POLL_S)
        return "vLLM's engine process ended"

    async def close(self) -> None:
        if self._constraints:
            await self._constraints.close()
        # Its engine process takes more than five seconds to go when asked, and has nothing to save. Not in a thread:
        # vLLM's reader, which runs in this loop, would take the end for a failure.
        self._engine.shutdown(_STOP_S)

    async def _structured(self, request: Request, deadline: Deadline) -> Any:
        """vLLM's word for the request's constraint, once it is known to be one, and little work."""
        if request.constraint is None:
            return None
        if self._constraints:
            await self._constraints.check(request.constraint, request.tenant, deadline)
        config, tokenizer = self._engine.vllm_config, self._engine.get_tokenizer()
        return await asyncio.to_thread(structured_outputs, request.constraint, config, tokenizer)

    async def _prompt(self, messages: tuple[Message, ...], prefix: str) -> Any:
        limit = self._model.context_tokens - 1  # at least one token to answer with
        longest = limit * self._engine.get_tokenizer().max_chars_per_token
        characters = sum(len(message.content) for message in messages) + len(prefix)
        if characters > longest:  # cannot fit, so do not spend seconds on counting its tokens
            raise InvalidInput("messages", f"at most {limit} tokens", f"{characters} characters")
        prompt = await self._render(messages, prefix)
        tokens = len(prompt["prompt_token_ids"])
        if tokens > limit:
            raise InvalidInput("messages", f"at most {limit} tokens", f"{tokens} tokens")
        return prompt

    async def _render(self, messages: tuple[Message, ...], prefix: str = "") -> Any:
        """The model's own chat template, then tokens: vLLM does both in a thread.

        A prefix is the last message, left open. A template that trims its messages also trims the prefix.
        """
        from vllm.exceptions import VLLMClientError

        conversation = [{"role": message.role, "content": message.content} for message in messages]
        if prefix:
            conversation.append({"role": "assistant", "content": prefix})
        if self._engine.errored:
            raise Unavailable("the engine is down")
        chat = self._go_on if prefix else self._begin
        try:
            _, (prompt,) = await self._engine.renderer.render_chat_async([conversation], chat, self._tokenize)
        except VLLMClientError as error:
            raise template_refusal(error) from None
        return prompt


async def start(settings: LlmSettings, progress: Progress) -> VllmEngine:
    """See `engines.py`."""
    return await VllmEngine.start(settings, progress)


class _Tally:
    """Turns vLLM's outputs into chunks, and counts."""

    def __init__(self, prompt: int):
        self.prompt, self.completion, self.cached = prompt, 0, 0
        self._unsent = 0  # tokens whose text vLLM still holds back: half a character, or what may become a stop string

    def add(self, output: Any) -> Chunk | None:
        """The chunk an output makes, unless it has neither text nor the end."""
        (completion,) = output.outputs
        self.completion += len(completion.token_ids)
        self._unsent += len(completion.token_ids)
        self.cached = output.num_cached_tokens or 0
        if not completion.text and not output.finished:
            return None
        tokens, self._unsent = self._unsent, 0
        return Chunk(completion.text, tokens, self._finish(output, completion) if output.finished else None)

    def interrupted(self) -> Chunk:
        """The end, when there will be no more outputs."""
        return Chunk("", self._unsent, Finish(FinishReason.INTERRUPTED, self._usage(None)))

    def _finish(self, output: Any, completion: Any) -> Finish:
        reason = _REASONS.get(completion.finish_reason, FinishReason.INTERRUPTED)
        times = output.metrics
        return Finish(reason, self._usage(completion.spec_decode_metrics), (times.scheduled_ts - times.queued_ts) * 1e3)

    def _usage(self, speculation: Any) -> Usage:
        drafted = accepted = 0
        if speculation is not None:
            drafted = speculation.num_draft_tokens
            accepted = sum(kept * steps for kept, steps in enumerate(speculation.histogram))
        return Usage(self.prompt, self.completion, self.cached, drafted, accepted)


def _constraints(engine: Any, settings: LlmSettings) -> Constraints | None:
    """None where vLLM makes grammars in another way than the trial does."""
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


def _describe(engine: Any, settings: LlmSettings) -> Model:
    speculation = engine.vllm_config.speculative_config
    context = int(engine.model_config.max_model_len)
    return Model(
        name=settings.public_name,
        engine="vllm",
        context_tokens=context,
        max_tokens=min(settings.max_tokens_cap, context - 1),
        speculation=speculation.method if speculation else "off",
        continues=True,
        salts=True,
    )
