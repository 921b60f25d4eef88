"""Looks questions up in GPTCache, in an environment that has it: `python -P bench/cache/gptcache_process.py`.

One line of JSON comes in (`folder`, `model`, `max_tokens`, `stored`, `asked`); lines with `progress` go out, and at
last one with `hits` and `ms`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TOLD_EVERY = 1_000


def main() -> None:
    order = json.loads(sys.stdin.readline())
    answers, sys.stdout = sys.stdout, sys.stderr  # whoever prints, prints elsewhere

    def tell(**said: object) -> None:
        print(json.dumps(said), file=answers, flush=True)

    fits = _open(order)
    from gptcache.adapter.api import get, put

    for number, question in enumerate(order["stored"]):
        if fits(question):
            put(question, str(number))
        if (number + 1) % _TOLD_EVERY == 0:
            tell(progress=f"stored {number + 1:,} of {len(order['stored']):,}")
    hits, times = [], []
    for number, question in enumerate(order["asked"]):
        started = time.perf_counter()
        found = get(question) if fits(question) else None
        times.append((time.perf_counter() - started) * 1000)
        hits.append(None if found is None else int(found))
        if (number + 1) % _TOLD_EVERY == 0:
            tell(progress=f"looked {number + 1:,} of {len(order['asked']):,} up")
    tell(hits=hits, ms=times)


def _open(order: dict[str, Any]) -> Callable[[str], bool]:
    """As its README has it, with an embedding function of our own and room for all. Tells whether the embedder may read
    a text, which is never stored and always missed else, as in our cache."""
    from gptcache import Config, cache
    from gptcache.manager import CacheBase, VectorBase, get_data_manager
    from gptcache.processor.pre import get_prompt
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

    from services.cache.engines import DIMENSION, CTranslate2Engine

    engine = CTranslate2Engine(Path(order["model"]), order["max_tokens"])

    def embed(text: str, **_: object) -> Any:
        return engine.embed_batch([text])[0]

    folder = Path(order["folder"])
    scalars = CacheBase("sqlite", sql_url=f"sqlite:///{folder / 'sqlite.db'}")
    vectors = VectorBase("faiss", dimension=DIMENSION, index_path=str(folder / "faiss.index"))
    cache.init(
        pre_embedding_func=get_prompt,
        embedding_func=embed,
        data_manager=get_data_manager(scalars, vectors, max_size=len(order["stored"]) + 1),
        similarity_evaluation=SearchDistanceEvaluation(),
        config=Config(similarity_threshold=0.8, disable_report=True),
    )
    return lambda text: engine.length(text) + 2 <= order["max_tokens"]  # and the two that mark its ends


if __name__ == "__main__":
    main()
