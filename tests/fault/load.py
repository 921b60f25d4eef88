"""A steady load on a mesh whose services are there twice, how its calls end, and what the mesh reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hedgerow.control.v1 import control_pb2
from tests.fault.asking import Asker, Outcome
from tests.fault.replicated import Replicated

RATE = 50  # calls a second


async def answer_well(caller: Asker) -> None:
    """Ask until each gateway has had its turn several times, and all is well."""
    well = 0
    async with asyncio.timeout(30):
        while well < 8:
            outcome = await caller.ask(f"Well {time.monotonic_ns()}?", budget_ms=5_000)
            well = well + 1 if outcome.ok else 0


class Load:
    """Questions at a steady rate, until it is stopped; a third of them in a run that writes no table."""

    def __init__(self, caller: Asker, full_size: bool, **fields: object):
        self._caller, self._fields = caller, {"budget_ms": 5_000, **fields}
        self._share = 1 if full_size else 3
        self.tasks: list[asyncio.Task[Outcome]] = []

    @property
    def in_flight(self) -> int:
        return sum(not task.done() for task in self.tasks)

    async def send(self, calls: int) -> None:
        """So many more, at `RATE` a second."""
        began = time.monotonic()
        for number in range(calls // self._share):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            question = f"Load {time.monotonic_ns()}?"
            self.tasks.append(asyncio.create_task(self._caller.ask(question, **self._fields)))

    async def outcomes(self) -> list[Outcome]:
        """The outcomes of all calls, when they have ended."""
        return list(await asyncio.gather(*self.tasks))


def failures_in(outcomes: list[Outcome]) -> list[Outcome]:
    """Answers that are not whole. Each says so."""
    assert all(map(is_typed, outcomes)), [each for each in outcomes if not is_typed(each)]
    return [outcome for outcome in outcomes if not outcome.whole]


def is_typed(outcome: Outcome) -> bool:
    """Envoy can end a stream whose gateway died in mid-answer by a reset alone; our SDK calls that Unavailable."""
    return outcome.typed or "RST_STREAM" in outcome.details


async def once_known(replicas: Replicated, full_size: bool) -> list[Outcome]:
    """How calls end that begin after every client knows the unhealthy replica."""
    await replicas.until(lambda mesh: all(each.sent_version == each.acked_version for each in subscriptions(mesh)))
    load = Load(replicas.caller, full_size)  # more time than a machine stands still, and none for what never answers
    await load.send(2 * RATE)
    return await load.outcomes()


def in_service(mesh: control_pb2.GetMeshResponse, address: str) -> bool:
    return any(each.in_service for of in mesh.services for each in of.endpoints if each.address == address)


@contextmanager
def edited_topology(file: Path) -> Iterator[Any]:
    """The topology's content, to be changed and written; it is as it was afterwards."""
    before = yaml.safe_load(file.read_text())
    try:
        yield yaml.safe_load(file.read_text())
    finally:
        write_topology(file, before)


def write_topology(file: Path, topology: Any) -> None:
    unfinished = file.with_suffix(".new")
    unfinished.write_text(yaml.safe_dump(topology))
    unfinished.replace(file)


def refusals(mesh: control_pb2.GetMeshResponse) -> list[str]:
    return [each.refused for each in subscriptions(mesh) if each.refused]


def subscriptions(mesh: control_pb2.GetMeshResponse) -> list[control_pb2.Subscription]:
    return [each for client in mesh.clients for each in client.subscriptions]
