"""Imported by the process that `tests/forked.py` forks services from, and by no other: a forkserver imports modules by
name, and runs no function."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from tests.forked import PRELOADED

# Where this package is installed, jsonschema spends a second on its grammar.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
for _module in PRELOADED:
    import_module(_module)
gc.collect()
gc.freeze()  # a collection would have every child copy all of it
