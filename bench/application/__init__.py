"""The application's side: what a diet, a cut conversation and a cascade save, and what becomes of the answers.

Real engines: the demo mesh, with its own questions, of which the right answers are known. All arms of a comparison are
asked question by question in turns.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from bench.application.prompts import bloated
from bench.stats import percentiles
from hedgerow import Answer, AsyncClient, Message, Options
from launcher.demo import SERVICES, demo_mesh
from launcher.processes import free_ports
from launcher.progress import Progress as Shown
from launcher.progress import started
from tests.models import FIXTURES

QUESTIONS = 300
SEED = 20_000  # the models have seen no dialogue that was drawn with it
TURNS = range(40, 60)
FRESH: Options = {"cache": "bypass", "temperature": 0}
ARMS: Mapping[str, Options] = {
    "always fast": {"tier": "fast", **FRESH},
    "always quality": {"tier": "quality", **FRESH},
    "cascade, rules": {"cascade": ("rules",), **FRESH},
    "cascade, log-probabilities": {"cascade": ("logprobs",), **FRESH},
}
Progress = Callable[[str], None]
Asked = tuple[str, str]  # a question and its answer


async def run(progress: Progress) -> dict[str, object]:
    """Start the demo mesh, measure, stop it. About four minutes."""
    questions = drawn(QUESTIONS)
    with tempfile.TemporaryDirectory() as folder:
        progress("application: starting the demo mesh")
        async with _mesh(Path(folder)) as client:
            return {
                "cascade": await _cascade(client, questions, progress),
                "diet": await _diet(client, questions, progress),
                "conversation": await _conversation(client, progress),
            }


def drawn(count: int) -> list[Asked]:
    """Questions of the closed world with their answers; those with one right answer, and no conversation before."""
    folder = str(Path(__file__).parents[2] / "training")
    sys.path.insert(0, folder)
    try:
        corpus: Any = import_module("corpus")
    finally:
        sys.path.remove(folder)
    rng = random.Random(SEED)
    topics = [topic for topic in corpus.TOPICS if topic.__name__ not in ("story", "picture", "visual_question")]
    turns = [rng.choice(topics)(rng) for _ in range(count)]
    return [(turn.question(rng), turn.answer) for turn in turns]


async def _cascade(client: AsyncClient, questions: Sequence[Asked], progress: Progress) -> dict[str, object]:
    answers: dict[str, list[Answer]] = {arm: [] for arm in ARMS}
    for number, (question, _) in enumerate(questions, 1):
        for arm, options in ARMS.items():
            answers[arm].append(await client.ask(question, **options))
        if number % 50 == 0:
            progress(f"application: {number} of {len(questions)} questions, {len(ARMS)} ways")
    right = [answer for _, answer in questions]
    return {
        arm: {
            "n": len(given),
            "right": sum(one.text.strip() == wanted for one, wanted in zip(given, right, strict=True)) / len(given),
            "usd": round(sum(one.cost_usd for one in given), 8),
            "total_ms": percentiles([one.total_ms for one in given]),
            "escalated": sum(_did(one, "cascade", "escalated") for one in given) / len(given),
        }
        for arm, given in answers.items()
    }


async def _diet(client: AsyncClient, questions: Sequence[Asked], progress: Progress) -> dict[str, object]:
    systems, given = bloated(), dict[str, list[Answer]](off=[], system=[])
    for number, (question, _) in enumerate(questions, 1):
        messages = [Message("system", systems[number % len(systems)]), Message("user", question)]
        for diet, answers in given.items():
            options: Any = {"diet": diet, "tier": "quality", "temperature": 0, "cache": "bypass"}
            answers.append(await client.ask(messages, **options))
        if number % 50 == 0:
            progress(f"application: {number} of {len(questions)} questions behind long system prompts")
    without, with_it = given["off"], given["system"]
    tokens = [sum(answer.usage.prompt_tokens for answer in answers) for answers in (without, with_it)]
    return {
        "n": len(questions),
        "prompt_tokens": {"off": tokens[0], "system": tokens[1], "saved": round(1 - tokens[1] / tokens[0], 4)},
        "ttft_ms": {diet: percentiles([answer.ttft_ms or 0.0 for answer in given[diet]]) for diet in given},
        "stage_ms": percentiles([_spent(answer, "prompt") for answer in with_it]),
        "same_answer": sum(a.text == b.text for a, b in zip(without, with_it, strict=True)) / len(questions),
    }


async def _conversation(client: AsyncClient, progress: Progress) -> dict[str, object]:
    """What of a prompt the engine had read before, while a conversation outgrows its context."""
    progress("application: a conversation of 60 turns")
    asked, answer = "What is the capital of France?", "The capital of France is Paris."
    turns: list[Message] = []
    given: list[Answer] = []
    for turn in range(TURNS.stop):
        turns += [
            Message("user", f"Question {turn}: {asked} Please say it in one short sentence."),
            Message("assistant", f"Answer {turn}: {answer} It lies on the river Seine."),
        ]
        if turn in TURNS:
            options: Any = {"model": "demo-llm", "cache": "bypass", "max_tokens": 16, "temperature": 0}
            given.append(await client.ask([*turns, Message("user", asked)], **options))
    fitted = [one.prompt for one in given if one.prompt]
    prompts, cached = (
        sum(getattr(one.usage, name) for one in given) for name in ("prompt_tokens", "cached_prompt_tokens")
    )
    return {
        "n": len(given),
        "longest_before": max(report.tokens_before for report in fitted),
        "longest_after": max(report.tokens_after for report in fitted),
        "cuts": len({report.dropped_turns for report in fitted}),
        "prompt_reused": round(cached / prompts, 4),
        "stage_ms": percentiles([_spent(one, "prompt") for one in given]),
    }


def _did(answer: Answer, policy: str, action: str) -> bool:
    return any((made.policy, made.action) == (policy, action) for made in answer.decisions)


def _spent(answer: Answer, stage: str) -> float:
    return sum(each.spent_ms for each in answer.stages if each.name == stage)


@asynccontextmanager
async def _mesh(folder: Path) -> AsyncIterator[AsyncClient]:
    from rich.console import Console

    specs = demo_mesh(free_ports(len(SERVICES)), folder, FIXTURES)
    shown = Shown(Console(stderr=True), [spec.name for spec in specs])
    async with started(specs, folder, shown), AsyncClient(specs[-1].address) as client:
        await client.prewarm()
        yield client


def table(result: Mapping[str, Any]) -> Group:
    """For people."""
    cascade = Table("", "right", "US dollars", "p50", "p95", "escalated", title="Cascade")
    for arm, told in result["cascade"].items():
        total = told["total_ms"]
        cascade.add_row(
            *(arm, f"{told['right']:.1%}", f"{told['usd']:.6f}"),
            *(f"{total['p50']:.1f} ms", f"{total['p95']:.1f} ms", f"{told['escalated']:.1%}"),
        )
    diet, talk = result["diet"], result["conversation"]
    saved = Table("", "", title="Prompts", show_header=False)
    for what, value in (
        ("prompt tokens saved by the diet", f"{diet['prompt_tokens']['saved']:.1%}"),
        ("answers that stayed the same", f"{diet['same_answer']:.1%}"),
        (
            "first text, p50, without and with",
            f"{diet['ttft_ms']['off']['p50']} → {diet['ttft_ms']['system']['p50']} ms",
        ),
        ("a conversation's longest prompt", f"{talk['longest_before']} → {talk['longest_after']} tokens"),
        ("of its prompts, read before", f"{talk['prompt_reused']:.1%}"),
    ):
        saved.add_row(what, value)
    return Group(cascade, saved)
