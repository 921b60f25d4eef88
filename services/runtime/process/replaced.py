"""Settings of earlier versions that have another one in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# By the name in the environment: the setting to use.
INSTEAD: Mapping[str, str] = {
    "HEDGEROW_GATEWAY_AFTERMATH_BYTES": "HEDGEROW_GATEWAY_WRITE_BEHIND_BYTES",
    "HEDGEROW_GATEWAY_API_KEYS": "`keys` of a tenant",
    "HEDGEROW_GATEWAY_NEAR_CACHE_BYTES": "HEDGEROW_GATEWAY_L1_CACHE_BYTES",
    "HEDGEROW_GATEWAY_STAND_INS": "HEDGEROW_GATEWAY_FALLBACKS",
    "HEDGEROW_GATEWAY_VISION_MODEL": "HEDGEROW_VISION_DEFAULT_MODEL",
    "HEDGEROW_LLM_OPENAI__CONTINUES": "`prefix` in HEDGEROW_LLM_OPENAI__FEATURES",
}


def replacement(prefix: str, path: Sequence[str | int]) -> str:
    """The words for the setting at `path` of the service whose variables begin with `prefix`; empty for one that no
    version had."""
    instead = INSTEAD.get(f"{prefix}{'__'.join(map(str, path))}".upper())
    return f"no longer a setting, use {instead} (docs/upgrades.md)" if instead else ""
