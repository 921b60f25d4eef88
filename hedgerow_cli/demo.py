"""`hedgerow demo`: the mesh on public models, and some requests with their reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow_cli.demo_steps import STEPS, DemoStep, ends, says_something

if TYPE_CHECKING:
    from hedgerow import AsyncClient
    from hedgerow_cli.terminal import PlainConsole
    from launcher.mesh import Mesh
    from launcher.processes import ServiceSpec

STORED_WITHIN_S = 5.0
SAMPLES = Path(__file__).parents[1] / "samples"  # of a source checkout


def demo(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A question of your own, asked first.")] = "",
) -> None:
    """Start the mesh on free ports, send requests with text, pictures and speech, and stop it.

    It needs a clone of the repository, whose samples it sends. Missing models are pulled first ("hedgerow models
    list"), 260 MB. With all models it takes less than a minute. Exits with 1 if an answer fails its checks.

    \b
    Examples:
      hedgerow demo
      hedgerow demo "How do bees find their way home?"
    """
    import asyncio
    from tempfile import TemporaryDirectory

    from hedgerow_cli.failures import fail, needs, reported
    from hedgerow_cli.terminal import PlainConsole

    with needs("demo"):
        from launcher.mesh import MeshError
        from launcher.processes import ServiceFailed

    if not SAMPLES.is_dir():
        fail("the demo needs a clone of the repository, which has its samples; `hedgerow up` needs none")
    with TemporaryDirectory(prefix="hedgerow-demo-") as folder, reported():
        try:
            shortfalls = asyncio.run(_run(Path(folder), question, PlainConsole()))
        except (MeshError, ServiceFailed) as error:
            fail(str(error))
    if shortfalls is None:
        raise typer.Exit(130)  # interrupted
    if shortfalls:
        fail("\n".join(shortfalls))


async def _run(folder: Path, question: str, console: PlainConsole) -> list[str] | None:
    """The shortfalls; None where the demo was interrupted."""
    from hedgerow_cli.signals import cancelled_by_signals
    from hedgerow_cli.up_plans import pull_for_demo
    from launcher.demo import SERVICES, demo_mesh, public_models
    from launcher.processes import free_ports

    models = public_models()
    pull_for_demo(models, (), console)
    *ports, http_port = free_ports(len(SERVICES) + 1)
    console.print("Starting seven services: gateway, cache, router, two language models, vision and audio.")
    # Its answer may be long, and a slow CPU writes as much of it as the budget has time for.
    checks = (ends("stop", "length", "budget"), says_something)
    own = DemoStep("Your question", question, {"max_tokens": 200}, checks=checks)
    steps = (own, *STEPS) if question else STEPS
    with cancelled_by_signals():
        specs = demo_mesh(ports, folder, models, http_port=http_port)
        return await _play(specs, folder, steps, f"http://127.0.0.1:{http_port}/v1", console)
    return None


async def _play(
    specs: list[ServiceSpec], folder: Path, steps: tuple[DemoStep, ...], base_url: str, console: PlainConsole
) -> list[str]:
    """Start the services and ask. Returns the shortfalls."""
    from hedgerow import AsyncClient
    from launcher.progress import Progress, started

    progress = Progress(console, [spec.name for spec in specs])
    async with started(specs, folder, progress) as mesh, AsyncClient(specs[-1].address) as client:
        console.print(progress.services(mesh))
        await client.prewarm()
        shortfalls = [await _ask(client, mesh, step, console) for step in steps]
        shortfalls.append(await _ask_by_openai(base_url, console))
        return [shortfall for shortfall in shortfalls if shortfall]


async def _ask_by_openai(base_url: str, console: PlainConsole) -> str:
    """By OpenAI's own client. Returns what fell short."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    from hedgerow_cli.screen import written_as_it_comes

    title, question, text = "The same mesh by OpenAI's client: only the URL changes", "Name three colours.", ""
    console.rule(title, align="left", style="dim")
    console.print(f"› {question}")
    with written_as_it_comes() as write:
        direct = DefaultAsyncHttpxClient(trust_env=False)  # no proxy of the environment reaches this machine
        async with AsyncOpenAI(base_url=base_url, api_key="none", http_client=direct) as client:
            stream = await client.chat.completions.create(
                model="auto", messages=[{"role": "user", "content": question}], stream=True, max_tokens=60
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    write(choice.delta.content or "")
    console.print()
    return "" if text.strip() else f"{title}: expected an answer, got an empty one"


async def _ask(client: AsyncClient, mesh: Mesh, step: DemoStep, console: PlainConsole) -> str:
    """One step, with its report. Returns what fell short."""
    from hedgerow_cli.screen import print_report, written_as_it_comes

    if step.after_stored:
        await _stored(client, step.after_stored)
    console.rule(step.title, align="left", style="dim")
    console.print(f"› {' + '.join(filter(None, (step.question, step.audio, *step.images)))}")
    images, audio = [SAMPLES / name for name in step.images], SAMPLES / step.audio if step.audio else None
    with written_as_it_comes() as write, _paused(mesh, step.paused):
        answer = await client.ask(
            step.question, images=images, audio=audio, on_token=write, allow_fallback=True, **step.options
        )
    print_report(console, answer)
    console.print()
    return step.shortfall(answer)


async def _stored(client: AsyncClient, question: str) -> None:
    """Return when the cache holds the answer to `question`: it is stored after the client has it."""
    import asyncio

    with suppress(TimeoutError):  # the step's own check will fail
        async with asyncio.timeout(STORED_WITHIN_S):
            while not (await client.ask(question)).cache.key:  # noqa: ASYNC110  # another process sets no event
                await asyncio.sleep(0.01)


@contextmanager
def _paused(mesh: Mesh, name: str) -> Iterator[None]:
    """The processes of the service of this name are stopped inside."""
    from signal import SIGCONT, SIGSTOP

    processes = [each.process for each in mesh.services if each.spec.name == name and each.process]
    for process in processes:
        process.signal(SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.signal(SIGCONT)
