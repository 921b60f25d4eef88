"""Turns the telemetry of engines' libraries off, by the environment variables that each reads.

`services/__init__.py` calls this, before anything of ours can import such a library: ONNX Runtime has begun when its
import returns, and `disable_telemetry_events()` comes too late. Child processes inherit it. To turn
one on, set that library's own variable.
"""

from __future__ import annotations

from collections.abc import MutableMapping

SILENT = {
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime: looks up and calls its maker's host, ten seconds after its import
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # the hub's libraries, also while they fetch a model that the operator named
    "RAY_USAGE_STATS_ENABLED": "0",  # vLLM on several machines
    "DO_NOT_TRACK": "1",  # of https://consoledonottrack.com; vLLM and the hub's libraries follow it
}


def silence(environ: MutableMapping[str, str]) -> None:
    """Say all of it, but for what the operator has said otherwise. A variable that is there and empty says nothing."""
    for name, value in SILENT.items():
        if not environ.get(name):
            environ[name] = value
