"""How many requests vLLM is running, and how many wait."""

from __future__ import annotations

from typing import Any

from services.llm.engine import Load


class StatsKeeper:
    """Keeps the scheduler's last count.

    The scheduler reports after each step and so goes silent with the last request: after an abort its last word may say
    that one is still running. How many requests are unfinished is always known on our side, and bounds both counts.
    """

    def __init__(self) -> None:
        self._running = 0

    def load(self, unfinished: int) -> Load:
        """`unfinished`: requests added and neither finished nor aborted."""
        return combine(self._running, unfinished)

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """A `StatLoggerFactory` for vLLM."""
        from vllm.v1.metrics.loggers import StatLoggerBase

        keeper = self

        class Logger(StatLoggerBase):
            def __init__(self) -> None:
                pass

            def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
                if scheduler_stats is not None:
                    keeper._running = scheduler_stats.num_running_reqs

            def log_engine_initialized(self) -> None:
                pass

        return Logger()


def combine(reported_running: int, unfinished: int) -> Load:
    """Each unfinished request either runs or waits."""
    running = min(reported_running, unfinished)
    return Load(running, unfinished - running)
