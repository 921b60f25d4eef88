"""One loaded model: its engine on a thread of its own, behind a batcher.

Images of one request and of many are the same to the batcher. A single caller never waits: the batcher delays
only while it knows of others that may come, which are those whose pictures are being prepared, and under load (the last
batch served several calls) those whose answers have just gone out.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted
from services.runtime.policy.batch import Batcher
from services.vision import metrics
from services.vision.engine import VisionEngine
from services.vision.errors import BadModel, EngineFailed
from services.vision.manifest import Manifest
from services.vision.pictures import Array, Prepared

T = TypeVar("T")
_MOST_OF_ONE = 0.75  # of the queue, for the calls of one tenant


@dataclass(frozen=True, slots=True)
class Timing:
    """The parts of an item's time, in seconds, and the size of its batch."""

    preprocess_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0
    batch_size: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """The model's outputs for one item by name, without the batch dimension."""

    outputs: Mapping[str, Array]
    timing: Timing


@dataclass(frozen=True, slots=True)
class _WaitingImage:
    item: Prepared
    since: float
    call: int


class VisionModel:
    """Made from a warm engine: `shapes` are its outputs' without the batch, by name. Used on one event loop."""

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        labels: tuple[str, ...],
        engine: VisionEngine,
        shapes: Mapping[str, tuple[int, ...]],
        max_queue: int,
    ):
        self.name, self.manifest, self.labels, self.engine, self.shapes = name, manifest, labels, engine, shapes
        self._max_queue, self._inside, self._arriving = max_queue, 0, 0
        self._of_tenants = Counter[str]()  # the items inside
        self._call_numbers = itertools.count()
        self._calls, self._item_s = 1, 0.0  # that the last batch served, and what an item of it took
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, f"model-{name}")
        batching = manifest.batching
        self._batcher = Batcher(
            name, self._run, batching.max_size, batching.max_delay_ms / 1000, batching.preferred, max_queue,
            more_to_come=self._more_to_come,
        )  # fmt: skip
        self._images = metrics.IMAGES.labels(name)
        self._queue_seconds = metrics.QUEUE_SECONDS.labels(name)
        self._compute_seconds = metrics.COMPUTE_SECONDS.labels(name)

    @property
    def embedding_size(self) -> int:
        """0 when it makes none."""
        output = self.manifest.outputs.get("embedding")
        return int(np.prod(self.shapes[output])) if output else 0

    @contextmanager
    def admit(self, items: int, tenant: str = "") -> Iterator[None]:
        """Admit all items of a call, or raise `Exhausted`. Several calls of one tenant leave a part of the queue to
        others. The model is not closed while a call is inside."""
        self._check_space(items, self._inside, self._max_queue, "images")
        if tenant and (own := self._of_tenants[tenant]):
            self._check_space(items, own, round(self._max_queue * _MOST_OF_ONE), "images of one tenant")
        self._inside += items
        self._of_tenants[tenant] += items
        self._idle.clear()
        try:
            yield
        finally:
            self._inside -= items
            self._of_tenants -= Counter({tenant: items})  # keeps no tenant without items
            if not self._inside:
                self._idle.set()

    def _check_space(self, items: int, held: int, most: int, what: str) -> None:
        if held + items > most:
            message = f"{self.name}: {held} of {most} {what} queued or running, {items} more came"
            raise Exhausted(message, retry_delay_s=self._item_s * self._max_queue)

    async def compute(
        self, items: Sequence[asyncio.Future[Prepared]], deadline: Deadline, tenant: str = ""
    ) -> list[Row]:
        """A row for each item, in order, or the first error; then the others' work is given up. Tenants take turns."""
        self._arriving += len(items)
        call = next(self._call_numbers)
        if len(items) == 1:
            return [await self._one(items[0], call, deadline, tenant)]
        try:
            return await _together([self._one(item, call, deadline, tenant) for item in items])
        finally:
            for item in items:
                item.cancel()

    async def close(self) -> None:
        """Let those inside finish, then give the engine's memory back."""
        await self._idle.wait()
        await self._batcher.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self.engine.close)
        self._thread.shutdown()

    def _more_to_come(self) -> bool:
        return self._arriving > 0 or self._calls > 1

    async def _one(self, item: asyncio.Future[Prepared], call: int, deadline: Deadline, tenant: str) -> Row:
        try:
            prepared = await item
        except BaseException:  # refused, or given up
            self._arriving -= 1
            self._batcher.no_more_to_come()
            raise
        self._arriving -= 1  # and no turn of the event loop until the batcher has it
        row = await self._batcher.submit(_WaitingImage(prepared, time.perf_counter(), call), deadline, tenant)
        if isinstance(row, EngineFailed):
            raise row
        return row

    async def _run(self, batch: list[_WaitingImage]) -> list[Row | EngineFailed]:
        """A row for each item. Where the engine fails each has another try alone: one of them may be to blame."""
        try:
            return [*await self._rows(batch)]
        except EngineFailed as error:
            return [error] if len(batch) == 1 else [(await self._run([waiting]))[0] for waiting in batch]

    async def _rows(self, batch: list[_WaitingImage]) -> list[Row]:
        began = time.perf_counter()
        arrays = [waiting.item.array for waiting in batch]
        outputs = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, arrays)
        compute_s, size = time.perf_counter() - began, len(batch)
        self._calls, self._item_s = len({waiting.call for waiting in batch}), compute_s / size
        self._images.inc(size)
        self._compute_seconds.observe(compute_s)
        for waiting in batch:
            self._queue_seconds.observe(began - waiting.since)
        return [
            Row(
                {name: array[position] for name, array in outputs.items()},
                Timing(waiting.item.seconds, began - waiting.since, compute_s, size),
            )
            for position, waiting in enumerate(batch)
        ]

    def _compute(self, arrays: list[Array]) -> Mapping[str, Array]:
        return self.engine.run({self.manifest.input.name: np.stack(arrays)})


def warm_up(manifest: Manifest, labels: tuple[str, ...], engine: VisionEngine) -> dict[str, tuple[int, ...]]:
    """Compute every size of batch, and learn the shapes of the outputs; blocks. Raises `BadModel` for a model that is
    not what its manifest says."""
    outputs: Mapping[str, Array] = {}
    for size in manifest.sizes:
        try:
            outputs = engine.run({manifest.input.name: np.zeros((size, *manifest.input.shape), manifest.input.dtype)})
        except EngineFailed as error:
            raise BadModel(f"a batch of {size}: {error.message}") from None
    shapes = {name: array.shape[1:] for name, array in outputs.items()}
    for name in filter(None, (manifest.scores, manifest.outputs.get("embedding"))):
        if len(shapes[name]) != 1:
            raise BadModel(f"outputs: {name}: 1 dimension without the batch, got the shape {shapes[name]}")
    if labels and shapes[manifest.scores or ""] != (len(labels),):
        raise BadModel(f"labels: one for each of {shapes[manifest.scores or '']} scores, got {len(labels)}")
    return shapes


async def _together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all calls, or the first error in their order, after which the others are cancelled. Every call is
    started."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = next((task for task in tasks if task.done() and task.exception()), None)
        return [failed.result()] if failed else [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
