"""Accuracy of the guard, and the time that it adds to a request.

Accuracy on the texts beside this file, which were written by hand and used for no training or tuning; times
on a real gateway and cache before a simulated engine that answers at once, three tenants in turns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from bench.asking import Timing, gateway, in_turns, milliseconds, question, timed
from bench.cluster import MODEL, Progress, clustered
from services.gateway.guard import injection
from services.gateway.settings.guard import UNGUARDED
from services.runtime.complexity import Complexity, classify
from services.runtime.security.mask_all import mask_all

BLOCKS, BLOCK, WARM_UP, TOKENS = 30, 50, 3, 16  # of each tenant; calls of a block; blocks; of an answer
_REQUEST = {"injection": "refuse", "secrets": "mask", "personal": "mask"}
TENANTS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "request": _REQUEST,
    "request and answer": {**_REQUEST, "answer_secrets": "mask", "answer_personal": "mask"},
}
_FOLDER = Path(__file__).parent
_SENTENCE = "Please check whether the meeting of 12 March still takes place at nine, and in which room. "


async def run(progress: Progress) -> dict[str, object]:
    """Read the texts, start what is needed, measure, stop it. About half a minute."""
    progress("accuracy")
    return {
        "injections": _injections(_texts("injections")),
        "private": _private(_texts("private")),
        "complexity": _complexity(_texts("questions")),
        "requests": await _requests(progress),
    }


def _texts(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_FOLDER / f"{name}.jsonl").read_text().splitlines()]


def _injections(texts: list[dict[str, Any]]) -> dict[str, float]:
    found = [(text["injection"], _is_injection(text["text"])) for text in texts]
    return {"n": len(texts), **_scores(found)}


def _is_injection(text: str) -> bool:
    least = UNGUARDED.injection_score
    return any(injection.by_pattern(piece) or injection.probability(piece) >= least for piece in injection.pieces(text))


def _private(texts: list[dict[str, Any]]) -> dict[str, float]:
    """By texts: whether anything is found in one that holds something, and whether the right part of it is hidden."""
    found = [(text["text"] != text["hidden"], mask_all(text["text"]) != text["text"]) for text in texts]
    exact = sum(mask_all(text["text"]) == text["hidden"] for text in texts) / len(texts)
    return {"n": len(texts), **_scores(found), "exact": round(exact, 4)}


def _complexity(texts: list[dict[str, Any]]) -> dict[str, float]:
    right = [(classify(text["text"]) is Complexity.COMPLEX) is text["complex"] for text in texts]
    return {"n": len(texts), "right": round(sum(right) / len(right), 4)}


def _scores(found: list[tuple[bool, bool]]) -> dict[str, float]:
    """Scores of pairs (truth, result)."""
    hits = sum(so and said for so, said in found)
    said, so = sum(said for _, said in found), sum(so for so, _ in found)
    return {"precision": round(hits / said, 4), "recall": round(hits / so, 4), "false_alarms": said - hits}


async def _requests(progress: Progress) -> dict[str, Any]:
    """The times of each tenant's calls."""
    async with clustered(progress) as cluster:
        llm, cache = await cluster.llm(), await cluster.cache()
        tenants = {
            name: {"keys": [hashlib.sha256(name.encode()).hexdigest()], "guard": own} for name, own in TENANTS.items()
        }
        front = await cluster.gateway(
            cache_address=cache.spec.address, llm_addresses={MODEL: llm.spec.address}, tenants=tenants
        )
        ask = gateway(await cluster.channel(front))

        async def block(number: int, tenant: str) -> list[Timing]:
            key = (("authorization", f"Bearer {tenant}"),)
            asked = [question(f"What is {number} times {each}? {_SENTENCE}", TOKENS) for each in range(BLOCK)]
            return [await timed(ask, each, key) for each in asked]

        progress(f"{BLOCKS} blocks of {BLOCK} questions of {len(TENANTS)} tenants in turns")
        ways = {tenant: partial(block, tenant=tenant) for tenant in TENANTS}
        blocks = await in_turns(ways, BLOCKS, WARM_UP)
    summaries = {name: milliseconds([*chain(*timings)]) for name, timings in blocks.items()}
    return {"n": BLOCKS * BLOCK, **summaries}
