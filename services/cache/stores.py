"""The backends, by the name that the setting `store` has for them. A new one is a module with `open_store` and a line
here; settings beyond `CacheSettings` are in a settings class of its own."""

from __future__ import annotations

STORES = {
    "file": "services.cache.file_store",
    "redis": "services.cache.redis_store",
}
