"""What a provider's HTTP costs: the llm service's engine and bare HTTP clients, over HTTP/1.1, TLS and HTTP/2.

All clients ask one simulated provider, a process of its own, in turns within one run: one at a time, then eight at
once. They run on uvloop, as the service does.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

import uvloop
from rich.table import Table

from bench.provider.__main__ import TOKENS
from bench.provider.clients import Aiohttp, Client, Engine, HttpxToTheEnd, HttpxUntilDone, Pyqwest
from bench.stats import percentiles
from launcher.certificate_authority import make_authority, write_identity

NAME = "llm_provider"
TURNS, WARM_UP = 40, 2  # of each client
CALLS = {1: 5, 8: 16}  # of a turn, by how many are under way at once
KINDS = {"HTTP/1.1": ("http1", False), "HTTP/1.1 over TLS": ("http1", True), "HTTP/2 over TLS": ("http2", True)}
CLIENTS: tuple[type[Client], ...] = (HttpxUntilDone, HttpxToTheEnd, Aiohttp, Pyqwest, Engine)
Progress = Callable[[str], None]
Accepted = Callable[[], int]


@dataclass
class Turns:
    """What was measured of one client."""

    first_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)  # of this process, for one call; the mean of a turn
    opened: int = 0  # connections

    def summary(self) -> dict[str, object]:
        return {
            "first_ms": percentiles([seconds * 1000 for seconds in self.first_s]),
            "cpu_ms": round(median(self.cpu_s) * 1000, 3),
            "connections": self.opened,
            "calls": len(self.first_s),
        }


async def run(progress: Progress) -> dict[str, object]:
    """Start what is needed, measure, stop it. About two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        authority = make_authority()
        write_identity(Path(folder), authority.pem(), authority.issue("llm", 1))
        return {kind: await asyncio.to_thread(_kind, kind, Path(folder), progress) for kind in KINDS}


def _kind(kind: str, folder: Path, progress: Progress) -> dict[str, object]:
    protocol, tls = KINDS[kind]
    found = {}
    with _provider(protocol, str(folder) if tls else "") as (url, accepted):
        for at_once, calls in CALLS.items():
            progress(f"llm_provider: {kind}, {at_once} at once, {TURNS} turns of {calls} calls for each client")
            measured = _measure(url, str(folder / "ca.crt"), protocol == "http2", at_once, accepted)
            found[f"{at_once} at once"] = uvloop.run(measured)
    return found


async def _measure(url: str, ca_file: str, http2: bool, at_once: int, accepted: Accepted) -> dict[str, object]:
    clients = {client.name: client(url, ca_file, http2) for client in CLIENTS if client.can_http2 or not http2}
    turns = {name: Turns() for name in clients}
    for number in range(WARM_UP + TURNS):
        for name, client in clients.items():
            await _turn(client, at_once, accepted, turns[name] if number >= WARM_UP else Turns())
    for client in clients.values():
        await client.close()
    return {name: of.summary() for name, of in turns.items()}


async def _turn(client: Client, at_once: int, accepted: Accepted, turns: Turns) -> None:
    opened, left, cpu_s = accepted(), iter(range(CALLS[at_once])), time.process_time()

    async def caller() -> None:
        for _ in left:
            turns.first_s.append(await client.first_s())

    await asyncio.gather(*(caller() for _ in range(at_once)))
    turns.cpu_s.append((time.process_time() - cpu_s) / CALLS[at_once])
    turns.opened += accepted() - opened


@contextmanager
def _provider(protocol: str, folder: str) -> Iterator[tuple[str, Accepted]]:
    command = [sys.executable, "-m", "bench.provider", protocol, *([folder] if folder else [])]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        requests, replies = process.stdin, process.stdout

        def accepted() -> int:
            requests.write("\n")
            return int(replies.readline())

        yield replies.readline().strip(), accepted  # leaving ends its input, and so the process


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    title = f"A provider on this machine that answers at once, {TOKENS} tokens 1 ms apart"
    table = Table("provider", "client", "at once", title=title)
    for column in ("first p50", "first p99", "CPU", "opened", "calls"):
        table.add_column(column, justify="right")
    table.caption = "First text and CPU of a call in ms; connections opened."
    for kind, by_load in result.items():
        for at_once, clients in by_load.items():
            for name, row in clients.items():
                first = row["first_ms"]
                figures = (f"{first['p50']:.2f}", f"{first['p99']:.2f}", f"{row['cpu_ms']:.2f}")
                table.add_row(kind, name, at_once.split()[0], *figures, str(row["connections"]), str(row["calls"]))
        table.add_section()
    return table
