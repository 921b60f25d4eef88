"""Counts of vLLM: its outputs become chunks with usage; running and waiting requests come from its scheduler."""

from __future__ import annotations

from typing import Any

from services.llm.engine import Chunk, Finish, FinishReason, Load, TokenLogprob, Usage
from services.llm.vllm.reading import VllmReading

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class TokenTally:
    """Counts the tokens of an answer to a prompt of `prompt` tokens."""

    def __init__(self, prompt: int, reading: VllmReading, top_logprobs: int | None = None):
        self.prompt, self.completion, self.cached = prompt, 0, 0
        self._reading, self._top = reading, top_logprobs or 0
        self._unsent = 0  # tokens whose text is held back: half a character, or what may become a stop string or a call
        self._logprobs: list[TokenLogprob] = []  # of those

    def add(self, output: Any) -> Chunk | None:
        """The chunk an output makes, unless it says nothing and is not the end. Raises Unreadable."""
        (completion,) = output.outputs
        self.completion += len(completion.token_ids)
        self._unsent += len(completion.token_ids)
        self.cached = output.num_cached_tokens or 0
        self._logprobs += _logprobs(completion, self._top)
        said = self._reading.read(completion.text, completion.token_ids, finished=output.finished)
        if not said and not output.finished:
            return None
        tokens, self._unsent = self._unsent, 0
        logprobs, self._logprobs = self._logprobs, []
        finish = self._finish(output, completion) if output.finished else None
        shown = () if said.reasoning or self._reading.called else tuple(logprobs)  # they are the text's
        return Chunk(said.text, tokens, finish, said.tool_calls, said.reasoning, shown)

    def interrupted(self) -> Chunk:
        """The end, when there will be no more outputs."""
        return Chunk("", self._unsent, Finish(FinishReason.INTERRUPTED, self._usage(None)))

    def _finish(self, output: Any, completion: Any) -> Finish:
        reason = _REASONS.get(completion.finish_reason, FinishReason.INTERRUPTED)
        if reason == FinishReason.STOP and self._reading.called:
            reason = FinishReason.TOOL_CALLS
        times = output.metrics
        return Finish(reason, self._usage(completion.spec_decode_metrics), (times.scheduled_ts - times.queued_ts) * 1e3)

    def _usage(self, speculation: Any) -> Usage:
        drafted = accepted = 0
        if speculation is not None:
            drafted = speculation.num_draft_tokens
            accepted = sum(kept * steps for kept, steps in enumerate(speculation.histogram))
        thought = self._reading.reasoning_tokens()
        return Usage(
            prompt_tokens=self.prompt,
            completion_tokens=self.completion,
            cached_prompt_tokens=self.cached,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            reasoning_tokens=thought,
        )


def _logprobs(completion: Any, top: int) -> list[TokenLogprob]:
    """The log-probabilities of each token and of the `top` likeliest: vLLM returns both together."""
    logprobs = []
    for token, likely in zip(completion.token_ids, completion.logprobs or (), strict=False):
        best = sorted((one for one in likely.values() if one.rank <= top), key=lambda one: one.rank)
        logprobs.append(_logprob(likely[token], tuple(_logprob(one) for one in best[:top])))
    return logprobs


def _logprob(one: Any, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    text = one.decoded_token or ""
    return TokenLogprob(text, text.encode(), min(one.logprob, 0.0), top)


class StatsKeeper:
    """Keeps the scheduler's last count.

    The scheduler reports after each step and so goes silent with the last request: after an abort its last word may say
    that one is still running. How many requests are unfinished is always known on our side, and bounds both counts.
    """

    def __init__(self) -> None:
        self._running = 0

    def load(self, unfinished: int) -> Load:
        """`unfinished`: requests added and neither finished nor aborted."""
        return combine(self._running, unfinished)

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """A `StatLoggerFactory` for vLLM."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        keeper = self

        class Logger(StatLoggerBase):
            def __init__(self) -> None:
                pass

            def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    keeper._running = scheduler_stats.num_running_reqs

            def log_engine_initialized(self) -> None:
                pass

        return Logger()


def combine(reported_running: int, unfinished: int) -> Load:
    """Each unfinished request either runs or waits."""
    running = min(reported_running, unfinished)
    return Load(running, unfinished - running)
