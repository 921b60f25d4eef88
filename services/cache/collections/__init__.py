"""Collections: documents that tenants have put here, cut into snippets, and found by meaning and by words.

`servicer.py` and `tools.py` are what callers see; `collections.py` is what they can do; below it are cutting,
embedding, one SQLite file with an index of vectors beside it, and ranking. Of the cache it uses the engine, the
embedder and the scheduler; the cache uses nothing of it.
"""
