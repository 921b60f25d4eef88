"""An answer to show."""

from __future__ import annotations

from typing import Any

from hedgerow import Answer, CacheReport, StageReport, Timings, Usage

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def an_answer(**changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "text": "It is Paris.",
        "finish_reason": "stop",
        "model": "demo-llm",
        "usage": Usage(12, 20, 0, 0, 0),
        "cache": CacheReport("miss", 0.42, ""),
        "degraded": (),
        "stages": (
            StageReport("router", 10, 0.1, 0, "ok", "demo-llm: fastest that fits"),
            StageReport("cache", 60, 30, 0, "ok", "miss"),
            StageReport("llm", 270, 250, 30, "overrun", "demo-llm: cut off"),
        ),
        "ttft_ms": 75.0,
        "total_ms": 280.0,
        "trace_id": TRACE_ID,
        "budget_ms": 300.0,
        "timings": Timings(80, 10, 90, 285),
    }
    return Answer(**{**fields, **changes})
