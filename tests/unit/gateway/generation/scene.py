"""One job for a scripted fleet, on a paused clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.decisions import Decisions
from services.gateway.generation.job import Job, Report
from services.gateway.generation.stack import make_stack
from services.gateway.policies.slot import SlotRequest
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, ServiceError, Unavailable
from tests.clock import loop_clock, on_paused_loop
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text

GONE = Unavailable("gone")
HEDGE = {"mode": "fixed", "delay_ms": 100, "max_share": 1}
RETRY = {"max_share": 1}
ALWAYS_OPEN = {"min_calls": 1, "failure_rate": 0.01}  # one failure opens it


def too_busy() -> Exhausted:
    """An error of its own for each call, as over a wire, with a retry delay."""
    return Exhausted("busy", retry_delay_s=3)


def says(words: str, after_s: float = 0.0) -> ScriptedLlm:
    return ScriptedLlm(after_s, text(words), 0.01, finish())


class Scene:
    """One job for a fleet, the text that was read, and its end."""

    def __init__(self, fleet: Fleet, **order: object):
        deadline = Deadline.after(order.pop("budget_s", 10.0), loop_clock)
        defaults = {
            "request": llm_pb2.GenerateRequest(messages=[chat_pb2.Message(role=2, content="Who?")]),
            "models": tuple(fleet.pools),
            "deadline": deadline,
            "slot_request": SlotRequest(0, "acme", 1.0, deadline),
            "first_text": Deadline.never(loop_clock),
            "report": Report(Decisions(loop_clock)),
        }
        self.fleet = fleet
        fleet.count_request()
        self.observed: list[router_pb2.Observation] = []
        self.job = Job(**{**defaults, **order})
        self.report = self.job.report
        self.error: ServiceError | None = None
        self.words = ""

    async def run(self) -> Scene:
        stack = make_stack(self.fleet, self.observed.append)
        reader = stack.read(b"", self.job, self.job.deadline.remaining()).reader
        began = loop_clock()
        try:
            while items := await reader.take():
                self.words += "".join(item.text for item in items)
        except ServiceError as error:
            self.error = error
        finally:
            self.took_s = loop_clock() - began
            reader.close()
            for _ in range(10):  # turns of the loop, for each task that ends another
                await asyncio.sleep(0)
        assert all(pool.limiter.in_flight == 0 for pool in self.fleet.pools.values()), "a slot leaked"
        assert all(replica.in_flight == 0 for pool in self.fleet.pools.values() for replica in pool.replicas)
        return self

    @property
    def decisions(self) -> list[tuple[str, str]]:
        return [(made.policy, made.action) for made in self.report.decisions]


def play(
    order: dict | None = None,
    warm_up: int = 0,
    policies: dict | None = None,
    arrange: Callable[[Fleet], None] = lambda _: None,
    **llms: object,
) -> Scene:
    """Run one order on the paused loop; before it, the fleet is arranged, and `warm_up` requests earn budget."""

    async def main() -> Scene:
        behind = fleet(loop_clock, policies, **llms)
        arrange(behind)
        for _ in range(warm_up):
            behind.count_request()
        return await Scene(behind, **(order or {})).run()

    return on_paused_loop(main())


def calls(*llms: ScriptedLlm) -> list[int]:
    return [len(llm.calls) for llm in llms]
