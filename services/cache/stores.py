"""The backends, by the name that the setting `store` has for them. A new one is a module with `open_store` and a line
here; what it needs to know beyond `CacheSettings` it reads into a settings class of its own."""

from __future__ import annotations

STORES = {
    "file": "services.cache.file_store",
    "redis": "services.cache.redis_store",
}
