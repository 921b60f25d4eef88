"""The models of a folder, each in a folder of its own, and what becomes of them when a folder changes.

A model that changed is loaded and warmed up beside the one that serves, then takes its place; calls in flight finish on
the old one. A model that cannot be loaded is logged, and the old one goes on serving. Hidden folders are no models: a
writer that fills `.new` and then renames it is never seen half way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from watchfiles import awatch

from services.runtime.errors import shorten
from services.vision import manifest as manifests
from services.vision import metrics
from services.vision.engine import VisionEngine
from services.vision.errors import BadModel, ModelMissing
from services.vision.manifest import Manifest
from services.vision.model import VisionModel, warm_up

OpenEngine = Callable[[Manifest, int], VisionEngine]  # the threads; raises BadModel
_Fingerprint = tuple[tuple[str, int, int], ...]  # of each file: name, size, time of its last change
_log = logging.getLogger(__name__)


class Repository:
    """Models by name. Used on one event loop."""

    def __init__(self, folder: Path, default: str, threads: int, max_queue: int, open_engine: OpenEngine):
        self._folder, self._default, self._threads, self._max_queue = folder, default, threads, max_queue
        self._open_engine = open_engine
        self._models: dict[str, VisionModel] = {}
        self._seen: dict[str, _Fingerprint] = {}  # also of what could not be loaded: it is tried again when it changes
        self._absent: set[str] = set()  # at the last look
        self._leaving: set[asyncio.Task[None]] = set()

    def get(self, name: str) -> VisionModel:
        """The model of that name, or the default one for none. Raises `ModelMissing`."""
        wanted = name or self.default
        model = self._models.get(wanted)
        if model is None:
            there = ", ".join(sorted(self._models)) or "none"
            raise ModelMissing(f"model: one of {there}, got {shorten(wanted) or 'none'}", model=shorten(wanted))
        return model

    @property
    def default(self) -> str:
        """The name of the model that serves requests that name none; empty when there is no model at all."""
        return self._default or min(self._models, default="")

    def models(self) -> list[VisionModel]:
        """The models by name."""
        return [self._models[name] for name in sorted(self._models)]

    async def scan(self) -> None:
        """Make the models those of the folder. One goes when it is not there for the second time: a writer of a file
        may delete it first."""
        found = await asyncio.to_thread(_fingerprints, self._folder)
        absent = self._seen.keys() - found.keys()
        for name in absent & self._absent:
            del self._seen[name]
            if name in self._models:
                _log.info("%s: unloaded: it is gone from %s", name, self._folder)
                self._retire(self._models.pop(name))
        self._absent = absent - self._absent
        for name, fingerprint in found.items():
            if self._seen.get(name) != fingerprint:
                self._seen[name] = fingerprint
                await self._load(name)
        metrics.MODELS.set(len(self._models))

    async def watch(self, rescan_ms: int) -> None:
        """Scan whenever a file changes, and every `rescan_ms`: not every file system reports changes."""
        while True:
            try:
                async for _ in awatch(self._folder, rust_timeout=rescan_ms, yield_on_timeout=True, debounce=400):
                    await self._rescan()
            except (OSError, RuntimeError) as error:  # no such folder now, or the system watches no more of them
                _log.warning("%s: %s", self._folder, error)
                await asyncio.sleep(rescan_ms / 1000)
                await self._rescan()

    async def _rescan(self) -> None:
        try:
            await self.scan()
        except OSError as error:  # a folder that goes while it is looked at: the next scan will show it
            _log.warning("%s: %s", self._folder, error)

    async def close(self) -> None:
        """Give all memory back; calls in flight finish first."""
        for model in self._models.values():
            self._retire(model)
        self._models.clear()
        await asyncio.gather(*self._leaving)

    async def _load(self, name: str) -> None:
        try:
            model = await asyncio.to_thread(self._open, name)
        except BadModel as error:
            stays = "; the one that serves stays" if name in self._models else ""
            _log.error("%s: not loaded: %s%s", name, error, stays)
            metrics.LOADS.labels("broken").inc()
            return
        old = self._models.get(name)
        self._models[name] = model()
        metrics.LOADS.labels("loaded").inc()
        if old:
            self._retire(old)

    def _open(self, name: str) -> Callable[[], VisionModel]:
        """Load and warm up, off the event loop; the function that is returned makes the model on it."""
        began = time.perf_counter()
        manifest, labels = manifests.read(self._folder / name)
        try:
            engine = self._open_engine(manifest, self._threads)
            opened = time.perf_counter()
            try:
                shapes = warm_up(manifest, labels, engine)
            except BaseException:
                engine.close()
                raise
        except BadModel as error:
            raise BadModel(f"{self._folder / name / manifests.FILE}: {error}") from None
        except Exception as error:  # a library's own, about a file that is not what it should be
            raise BadModel(f"{manifest.file}: {type(error).__name__}: {error}") from error
        _log.info(
            "%s: %s on %s in %s, loaded in %.1f s, warmed up for batches of %s in %.1f s",
            name, engine.kind, engine.device, engine.precision, opened - began,
            ", ".join(map(str, manifest.sizes)), time.perf_counter() - opened,
        )  # fmt: skip
        return lambda: VisionModel(name, manifest, labels, engine, shapes, self._max_queue)

    def _retire(self, model: VisionModel) -> None:
        task = asyncio.get_running_loop().create_task(model.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _fingerprints(folder: Path) -> Mapping[str, _Fingerprint]:
    """The fingerprints of all folders with a model that are not hidden."""
    found = (path.parent for path in sorted(folder.glob(f"*/{manifests.FILE}")))
    return {path.name: _fingerprint(path) for path in found if not path.name.startswith(".")}


def _fingerprint(folder: Path) -> _Fingerprint:
    files = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in files)
