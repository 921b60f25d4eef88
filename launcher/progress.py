"""Progress of a mesh's start: a live table in a terminal, else a line for each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from launcher.mesh import Mesh
from launcher.processes import ServiceSpec
from launcher.supervisor import Change

_REMIND_S = 10.0
_COLOURS = {"serving": "green", "died": "red", "starting": "yellow"}


class Progress:
    """Shows each change: in a terminal as a table inside `with`, else as lines."""

    def __init__(self, console: Console, names: list[str]):
        self._console = console
        self._began = time.monotonic()
        self._latest = {name: Change(name, "starting") for name in names}
        self._serving_after_s: dict[str, float] = {}
        self._live: Live | None = None

    def __call__(self, change: Change) -> None:
        self._latest[change.service] = change
        if change.state == "serving":
            self._serving_after_s.setdefault(change.service, time.monotonic() - self._began)
        if self._live is None and change.state != "stopping":
            detail = f": {change.detail}" if change.detail else ""
            self._console.print(
                f"{change.service} {change.state}{detail}", markup=False, highlight=False, soft_wrap=True
            )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._live:
            live, self._live = self._live, None
            live.stop()

    async def remind(self, every_s: float = _REMIND_S) -> None:
        """Repeat the names of services that still start, if there is no table. Never returns."""
        while True:
            await asyncio.sleep(every_s)
            starting = [name for name, change in self._latest.items() if change.state == "starting"]
            if starting and self._live is None:
                after_s = time.monotonic() - self._began
                line = f"still starting after {after_s:.0f} s: {', '.join(starting)}"
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, change in self._latest.items():
            waiting = change.state in ("starting", "stopping")
            mark = Spinner("dots") if waiting else Text("●", _COLOURS.get(change.state, "dim"))
            after = self._serving_after_s.get(name, time.monotonic() - self._began)
            table.add_row(
                mark, name, Text(change.state, _COLOURS.get(change.state, "dim")), Text(f"{after:.1f} s", "dim")
            )
        return table

    def services(self, mesh: Mesh) -> Table:
        """The services and their addresses, once all serve."""
        table = Table("service", "address", "health", "pid", "ready after", box=None)
        for service in mesh.services:
            pid = str(service.process.pid) if service.process else ""
            after = f"{self._serving_after_s[service.spec.name]:.1f} s"
            for spec in service.spec.services:
                table.add_row(spec.name, spec.address, Text("SERVING", "green"), pid, after)
        return table

    def warnings(self, mesh: Mesh) -> list[str]:
        """Warnings of the models' services while they started, such as a provider that cannot be reached."""
        processes = [service.process for service in mesh.services if service.process]
        return [warning for process in processes for warning in process.warnings("services.llm")]


@asynccontextmanager
async def started(
    specs: Sequence[ServiceSpec], state_dir: Path, progress: Progress, prepare: Callable[[], None] = lambda: None
) -> AsyncIterator[Mesh]:
    """A mesh whose start is shown."""
    async with AsyncExitStack() as stack:
        with progress:
            reminding = asyncio.create_task(progress.remind())
            try:
                mesh = await stack.enter_async_context(Mesh(specs, state_dir, progress, prepare))
            finally:
                reminding.cancel()
        yield mesh
