"""An answer is let go of as soon as it is over: what only the garbage collector finds makes every answer slower, and a
flood keeps it in memory by the hundred."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

pytestmark = pytest.mark.paused

KINDS = {
    "a hit": lambda: Scene(ScriptedCache(EXACT)),
    "a generated answer": lambda: Scene(ScriptedCache(MISS), small=ScriptedLlm(text("Pa"), finish("ris."))),
    "one of the next model": lambda: Scene(small=ScriptedLlm(Unavailable("gone")), large=ScriptedLlm(finish("Paris."))),
    "one of two replicas": lambda: Scene(small=[ScriptedLlm(finish("Paris.")), ScriptedLlm(finish("Paris."))]),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_leaves_nothing_to_the_garbage_collector(kind: str) -> None:
    scene = KINDS[kind]()
    await scene.final()
    await asyncio.sleep(0.01)
    gc.freeze()  # objects of earlier tests take long to look through
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            await scene.final()
        await asyncio.sleep(0.01)
        gc.collect()
        left = Counter(type(each).__module__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert [module for module in left if module.startswith(("services.", "hedgerow."))] == []
