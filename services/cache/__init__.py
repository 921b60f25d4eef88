"""Answers that were given before: exact, semantic, and the embeddings behind them.

answers.py          lookup, store and removal; similarity: `keyed_question`, `embedding`, semantic_match/
memory.py           the held `entries` (evicted by `greedy_dual`), `vectors` by `partition`, `watch` of removals
store.py            where entries are kept: `file_store` (`database`, `no_database`), `redis_store` (`redis_*`)
semantic_parts.py   the parts of a cache with an embedder; without one: `exact_parts`
collections/        documents of tenants, and their search
"""
