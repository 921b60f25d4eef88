"""`hedgerow demo`: the mesh, a handful of questions, and what each shows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hedgerow import Answer, Options

if TYPE_CHECKING:
    from rich.console import Console

    from hedgerow import AsyncClient
    from launcher.processes import ServiceSpec

STORED_WITHIN_S = 5.0
CAPITAL = "What is the capital of France?"


@dataclass(frozen=True)
class Step:
    """A question, and what its answer must be."""

    title: str
    question: str
    options: Options = field(default_factory=Options)
    images: tuple[str, ...] = ()  # of models/samples
    audio: str = ""  # of models/samples
    verdict: str = ""  # of the cache; empty: any
    finish_reasons: tuple[str, ...] = ("stop",)
    contains: str = ""
    speculates: bool = False  # the draft's tokens must show
    decided: str = ""  # a policy and what it did
    stored: str = ""  # a question whose answer must be in the cache before
    cited: str = ""  # a source that must be cited
    patched: str = ""  # a stage whose result must come after its time
    heard: str = ""

    def shortfall(self, answer: Answer) -> str:
        """What was expected and did not come; empty when all did."""
        if self.verdict and answer.cache.verdict != self.verdict:
            return f"cache verdict {self.verdict}, got {answer.cache.verdict}"
        if answer.finish_reason not in self.finish_reasons:
            return f"an answer that ends with {' or '.join(self.finish_reasons)}, got {answer.finish_reason}"
        if self.heard != answer.transcript:
            return f"to hear {self.heard!r}, got {answer.transcript!r}"
        if self.contains not in answer.text:
            return f"an answer with {self.contains!r}, got {answer.text!r}"
        if self.decided and self.decided not in [f"{made.policy} {made.action}" for made in answer.decisions]:
            return f"the decision {self.decided!r}, got {[f'{made.policy} {made.action}' for made in answer.decisions]}"
        if self.cited and self.cited not in [each.source for found in answer.citations for each in found.citations]:
            return f"a citation of {self.cited}, got {[found.tool for found in answer.citations]}"
        if self.patched and self.patched not in [patch.stage for patch in answer.patches]:
            return f"a patch of {self.patched}, got {[patch.stage for patch in answer.patches]}"
        if self.speculates and not answer.usage.drafted_tokens:
            return "tokens drafted by the small model, got none"
        return ""


STEPS = (
    Step("A question", CAPITAL, verdict="miss", contains="Paris"),
    Step("The same again: no model is asked", CAPITAL, verdict="exact", contains="Paris"),
    Step(
        "The same in other words: the cache knows what it means",
        "Tell me the capital of France.",
        {"min_similarity": 0.8},
        verdict="semantic",
        contains="Paris",
        stored=CAPITAL,
    ),
    Step(
        "A long story in 300 ms: what there was by then, and no error",
        "Tell me a long story about a fox.",
        {"budget_ms": 300, "tier": "quality"},
        finish_reasons=("budget", "stop"),  # a fast machine may make it, a very busy one may not have begun
    ),
    Step(
        "The larger model, with the smaller one drafting for it",
        "What is 7 plus 5?",
        {"tier": "quality"},
        contains="12",
        speculates=True,
    ),
    Step(
        "A cascade: the small model is sure of its words",
        "What is the capital of Spain?",
        {"cascade": ("logprobs",)},
        contains="Madrid",
        decided="cascade passed",
    ),
    Step(
        "A cascade: it is not, and the larger one is asked",
        "Recommend a book about history.",
        {"cascade": ("logprobs",), "max_tokens": 24},
        finish_reasons=("stop", "length"),
        decided="cascade escalated",
    ),
    Step(
        "A collection: what a field guide says is read with the question, and cited",
        "Tell me a story about a fox.",
        {"mesh_tools": ("search_guide",), "tier": "quality"},
        cited="animals.md",
    ),
    Step(
        "Two slow tools at once: the one that is late comes beside the answer",
        "Tell me a long story about a fox.",
        {"mesh_tools": ("demo_almanac", "demo_archive"), "tier": "quality", "budget_ms": 10_000},
        finish_reasons=("stop", "length"),
        decided="tool late",
        patched="tool:demo_archive",
    ),
    Step(
        "A picture: what it shows is put before the question",
        "What is in the image?",
        images=("red-circle.png",),
        contains="red circle",
    ),
    Step(
        "A voice: the words it says find the stored answer",
        "",
        audio="capital-of-france.wav",
        heard=CAPITAL,
        verdict="exact",
        contains="The capital of France is Paris.",
    ),
    Step(
        "A voice and a picture at once",
        "",
        images=("blue-star.jpg",),
        audio="what-is-in-the-image.wav",
        heard="What is in the image?",
        contains="blue star",
    ),
)


def demo() -> None:
    """Start the mesh on free ports, ask it by text, picture and voice, and stop it. Takes about a minute.

    Exits with 1 when an answer is not what it must be.
    """
    import asyncio
    from tempfile import TemporaryDirectory

    from rich.console import Console

    from hedgerow.cli.failures import fail, needs, reported

    with needs("demo"):
        from launcher.mesh import MeshError
        from launcher.processes import ServiceFailed

    with TemporaryDirectory(prefix="hedgerow-demo-") as folder, reported():
        try:
            shortfalls = asyncio.run(_run(Path(folder), Console(highlight=False)))
        except (MeshError, ServiceFailed) as error:
            fail(str(error))
    if shortfalls is None:
        raise typer.Exit(130)  # told to stop
    if shortfalls:
        fail("\n".join(shortfalls))


async def _run(folder: Path, console: Console) -> list[str] | None:
    """What fell short; None when it was told to stop."""
    import json

    from hedgerow.cli.demo_tools import CALL_MS, serving_demo_tools
    from hedgerow.cli.signals import cancelled_by_signals
    from launcher.mesh import SERVICES, collections_at, default_models_dir, demo_mesh
    from launcher.processes import free_ports

    *ports, http_port = free_ports(len(SERVICES) + 1)
    console.print("Starting seven services: a gateway, a cache, a router, two language models, an eye and an ear.")
    with cancelled_by_signals():
        async with serving_demo_tools() as address:
            cache = f"127.0.0.1:{ports[SERVICES.index('cache')]}"
            sources = {**collections_at(cache), "demo": {"address": address, "call_ms": CALL_MS}}
            own = {"gateway": {"HEDGEROW_GATEWAY_TOOLS": json.dumps({"sources": sources})}}
            specs = demo_mesh(ports, folder, default_models_dir(), http_port=http_port, overrides=own)
            return await _play(specs, folder, f"http://127.0.0.1:{http_port}/v1", console)
    return None


async def _play(specs: list[ServiceSpec], folder: Path, base_url: str, console: Console) -> list[str]:
    """Start them, and ask. Returns what fell short."""
    from hedgerow import AsyncClient, AsyncCollectionClient
    from hedgerow.cli.demo_agent import ask_an_agent
    from hedgerow.cli.demo_tools import GUIDE, GUIDE_NAME
    from launcher.progress import Progress, started

    progress = Progress(console, [spec.name for spec in specs])
    async with started(specs, folder, progress) as mesh, AsyncClient(specs[-1].address) as client:
        console.print(progress.services(mesh))
        await client.prewarm()
        async with AsyncCollectionClient(next(spec.address for spec in specs if spec.name == "cache")) as collections:
            await collections.put("guide", GUIDE_NAME, GUIDE)
        shortfalls = [await _ask(client, step, console) for step in STEPS]
        shortfalls.append(await ask_an_agent(client, console))
        shortfalls.append(await _ask_as_others_do(base_url, console))
        return [shortfall for shortfall in shortfalls if shortfall]


async def _ask_as_others_do(base_url: str, console: Console) -> str:
    """By OpenAI's own client, which knows nothing of us. Returns what fell short."""
    from openai import AsyncOpenAI

    from hedgerow.cli.screen import written_as_it_comes

    title, text = "The same mesh by OpenAI's client: only the URL is ours", ""
    console.rule(title, align="left", style="dim")
    console.print(f"[bold]›[/] {CAPITAL}")
    with written_as_it_comes() as write:
        async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
            stream = await client.chat.completions.create(
                model="auto", messages=[{"role": "user", "content": CAPITAL}], stream=True
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    write(choice.delta.content or "")
    console.print()
    return "" if "Paris" in text else f"{title}: expected an answer with 'Paris', got {text!r}"


async def _stored(client: AsyncClient, question: str) -> None:
    """Return when the cache has the answer to `question`, which it gets after its client: the hit has a key then."""
    import asyncio

    with suppress(TimeoutError):  # the step that needs it will say so
        async with asyncio.timeout(STORED_WITHIN_S):
            while not (await client.ask(question)).cache.key:  # noqa: ASYNC110  # another process sets no event
                await asyncio.sleep(0.01)


async def _ask(client: AsyncClient, step: Step, console: Console) -> str:
    from hedgerow.cli.screen import print_account, written_as_it_comes
    from launcher.mesh import default_models_dir

    if step.stored:
        await _stored(client, step.stored)
    console.rule(step.title, align="left", style="dim")
    console.print(f"[bold]›[/] {' + '.join(filter(None, (step.question, step.audio, *step.images)))}")
    samples = default_models_dir() / "samples"
    images, audio = [samples / name for name in step.images], samples / step.audio if step.audio else None
    with written_as_it_comes() as write:
        answer = await client.ask(step.question, images=images, audio=audio, on_token=write, **step.options)
    print_account(console, answer)
    console.print()
    shortfall = step.shortfall(answer)
    return f"{step.title}: expected {shortfall}" if shortfall else ""
