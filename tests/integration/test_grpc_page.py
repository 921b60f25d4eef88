"""The client of `docs/grpc.md` runs, and its line for `protoc` names all the contracts that a client needs."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm
from tests.keys import digest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/grpc.md").read_text()


def run(gateway: HttpGateway, folder: Path) -> str:
    """The output of the page's client."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(program.splitlines()) <= 30
    (file := folder / "client.py").write_text(program.replace("127.0.0.1:50050", gateway.process.spec.address))
    return subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("tenant", "printed"),
    [
        ({"keys": [digest("sesame")]}, r"Paris\.\nm, \d+ of 2000 ms, trace [0-9a-f]{32}\n"),
        ({"keys": [digest("other")]}, r"UNAUTHENTICATED KEY_UNKNOWN \{.*'trace_id': '[0-9a-f]{32}'.*\} 0\n"),
    ],
)
async def test_the_client_prints_the_answer_or_what_the_error_says(
    start: Start, llm: ScriptedLlm, tmp_path: Path, tenant: dict[str, list[str]], printed: str
) -> None:
    gateway = await start_http_gateway(start, llm, tenants=json.dumps({"acme": tenant}))
    assert re.fullmatch(printed, await asyncio.to_thread(run, gateway, tmp_path))


def _named() -> Iterator[Path]:
    (braces,) = re.findall(r"protos/hedgerow/\{([a-z,]+)\}/v1/\*\.proto", PAGE)
    for name in braces.split(","):
        yield from (ROOT / f"protos/hedgerow/{name}/v1").glob("*.proto")


def test_the_line_for_protoc_generates_all_that_a_client_imports(tmp_path: Path) -> None:
    well_known = files("grpc_tools") / "_proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'protos'}", f"-I{well_known}"]
    subprocess.run([*command, f"--python_out={tmp_path}", *map(str, _named())], check=True, timeout=60)
    imported = {match for file in _named() for match in re.findall(r'^import "(hedgerow/.+)";', file.read_text(), re.M)}
    assert {str(tmp_path / name.replace(".proto", "_pb2.py")) for name in imported} <= set(
        map(str, tmp_path.rglob("*_pb2.py"))
    )
