"""vLLM as an application would use it, in a process of its own: the floor that `bench.llm` and `bench.public` compare
with.

Reads `{"prompt": …, "max_tokens": …, "ignore_eos": …}` lines, generates the answers of all at once, and writes a
`{"first_s": …, "total_s": …, "tokens": …, "accepted": …}` line for each with the line's `id`, as it is done. The first
line it writes is `{}`, once vLLM is loaded. Its argument is the engine's settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from typing import Any, TextIO

from services.llm.config import VllmSettings
from services.llm.vllm_args import engine_args, environment, set_environment


async def main(settings: VllmSettings, replies: TextIO) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(engine_args(settings))
    try:
        _write(replies, {})
        async with asyncio.TaskGroup() as answers:
            while line := await asyncio.to_thread(sys.stdin.readline):
                answers.create_task(_answer(engine, replies, **json.loads(line)))
    finally:
        engine.shutdown(0.2)


async def _answer(engine: Any, replies: TextIO, id: int = 0, **asked: Any) -> None:
    _write(replies, {"id": id, **await _generate(engine, **asked)})


def _write(replies: TextIO, reply: dict[str, float]) -> None:
    print(json.dumps(reply), file=replies, flush=True)


async def _generate(engine: Any, prompt: str, max_tokens: int, ignore_eos: bool = False) -> dict[str, float]:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    started, first, tokens, speculation = time.perf_counter(), 0.0, 0, None
    conversation = [{"role": "user", "content": prompt}]
    text = engine.get_tokenizer().apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=ignore_eos)
    params.output_kind = RequestOutputKind.DELTA
    async for output in engine.generate(text, params, uuid.uuid4().hex):
        first = first or time.perf_counter() - started
        tokens += len(output.outputs[0].token_ids)
        speculation = output.outputs[0].spec_decode_metrics
    total = time.perf_counter() - started
    accepted = sum(kept * steps for kept, steps in enumerate(speculation.histogram)) if speculation else 0
    return {"first_s": first, "total_s": total, "tokens": tokens, "accepted": accepted}


if __name__ == "__main__":
    chosen = VllmSettings(**json.loads(sys.argv[1]))
    set_environment(environment(chosen))
    own_output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints here goes to the log
    asyncio.run(main(chosen, own_output))
