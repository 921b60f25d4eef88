"""vLLM as an application would use it, in a process of its own: the floor that `bench.public` compares with.

Reads `{"id": …, "prompt": …, "max_tokens": …}` lines, generates the answers of all at once, and writes
a `{"id": …, "first_s": …, "total_s": …, "tokens": …}` line for each as it is done. The first line it
writes is `{}`, once vLLM is loaded. Its argument is the engine's settings.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:  # vLLM is measured without what a cluster imports
    from bench.cluster import Cluster

_START_S = 300.0


@dataclass(frozen=True)
class Sample:
    """One answer."""

    first_s: float  # to the first text
    total_s: float
    tokens: int

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.total_s


Ask = Callable[[str, int], Awaitable[Sample]]  # a prompt and the most tokens


async def loaded(cluster: Cluster, **settings: object) -> Ask:
    """Start this module with an engine's settings; return what asks it when vLLM is loaded."""
    cluster.progress("loading vLLM")
    process = await cluster.piped("bench.raw_vllm", json.dumps(settings))
    waiting: dict[int, asyncio.Future[Sample]] = {}
    numbers = itertools.count()

    async def read() -> None:
        while line := await process.stdout.readline():
            reply = json.loads(line)
            waiting.pop(reply.pop("id")).set_result(Sample(**reply))

    async def ask(prompt: str, tokens: int) -> Sample:
        number, reply = next(numbers), asyncio.get_running_loop().create_future()
        waiting[number] = reply
        process.stdin.write(json.dumps({"id": number, "prompt": prompt, "max_tokens": tokens}).encode() + b"\n")
        sample: Sample = await reply
        return sample

    await asyncio.wait_for(process.stdout.readline(), _START_S)
    cluster.stack.callback(asyncio.create_task(read()).cancel)
    return ask


async def main(settings: Any, replies: TextIO) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    from services.llm.vllm.args import engine_args

    engine = AsyncLLM.from_engine_args(engine_args(settings))
    try:
        _write(replies, {})
        async with asyncio.TaskGroup() as answers:
            while line := await asyncio.to_thread(sys.stdin.readline):
                answers.create_task(_answer(engine, replies, **json.loads(line)))
    finally:
        engine.shutdown(0.2)


async def _answer(engine: Any, replies: TextIO, id: int, **asked: Any) -> None:
    _write(replies, {"id": id, **await _generate(engine, **asked)})


def _write(replies: TextIO, reply: dict[str, float]) -> None:
    print(json.dumps(reply), file=replies, flush=True)


async def _generate(engine: Any, prompt: str, max_tokens: int) -> dict[str, float]:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    started, first, tokens = time.perf_counter(), 0.0, 0
    conversation = [{"role": "user", "content": prompt}]
    text = engine.get_tokenizer().apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    params.output_kind = RequestOutputKind.DELTA
    async for output in engine.generate(text, params, uuid.uuid4().hex):
        first = first or time.perf_counter() - started
        tokens += len(output.outputs[0].token_ids)
    return {"first_s": first, "total_s": time.perf_counter() - started, "tokens": tokens}


if __name__ == "__main__":
    from services.llm.config import VllmSettings
    from services.llm.vllm.args import environment, set_environment

    chosen = VllmSettings(**json.loads(sys.argv[1]))
    set_environment(environment(chosen))
    own_output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints here goes to the log
    asyncio.run(main(chosen, own_output))
