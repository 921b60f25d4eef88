"""The backends, by the name that the setting `store` has for them. A new one is a module with `open_store` and a line
here; what it needs to know beyond `CacheSettings` it reads into a settings class of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from services.cache.store import OpenStore

STORES = {
    "file": "services.cache.file_store",
    "redis": "services.cache.redis_store",
}


def opener(name: str) -> OpenStore:
    """What opens a store. Only the backend that is used is imported."""
    return cast("OpenStore", import_module(STORES[name]).open_store)
