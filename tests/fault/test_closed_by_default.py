"""What was forgotten opens nothing: it refuses to start, or to send, and says what would allow it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import hedgerow
from launcher.processes import free_port
from tests.fault.mesh import Processes
from tests.fault.report import Report
from tests.forked import ServiceProcess
from tests.integration.command import run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(60)]
_LLMS = {"m": "127.0.0.1:1"}
_KEYLESS = {"acme": {"premium": True}}
_CANNOT_START = 2  # the exit code
_KEYS = {"keys": [{"kty": "RSA", "kid": "1", "n": "AQAB", "e": "AQAB"}]}
_ELSEWHERE = "gateway.example:50050"


async def refused_start(process: ServiceProcess) -> str:
    """The one line in which a process said why it did not start."""
    async with asyncio.timeout(30):
        assert await process.wait() == _CANNOT_START, process.tail()
    said = process.log.read_text()
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if " INFO " not in line]
    return line


async def test_a_gateway_without_keys_does_not_start_beyond_loopback(
    starter: Processes, report: Report, tmp_path: Path
):
    (file := tmp_path / "tenants.yaml").write_text(json.dumps(_KEYLESS))
    forgotten: list[dict[str, object]] = [{}, {"tenants": _KEYLESS}, {"tenants_file": str(file)}, {"workers": 2}]
    with report.case(35, "a gateway beyond loopback without keys: no tenant, tenants in settings, in a file") as row:
        launched = [
            starter.launch("gateway", f"0.0.0.0:{free_port()}", plaintext=True, llm_addresses=_LLMS, **settings)
            for settings in forgotten
        ]
        for process in launched:
            said = await refused_start(process)
            row.tally(failed=1)
            assert "a key of a tenant (in `tenants` or `tenants_file`)" in said
            assert "allow_anonymous" in said


async def test_tokens_without_an_audience_are_refused(starter: Processes, report: Report, tmp_path: Path):
    (tmp_path / "jwks.json").write_text(json.dumps(_KEYS))
    jwt = {"issuer": "https://issuer.example", "jwks_file": str(tmp_path / "jwks.json")}
    topology = {
        "services": {"gateway": {"endpoints": [{"address": "127.0.0.1:1"}]}},
        "edge": {"address": "127.0.0.1:1", "jwt": jwt},
    }
    (file := tmp_path / "topology.yaml").write_text(json.dumps(topology))
    with report.case(35, "a topology whose tokens need no audience") as row:
        said = await refused_start(starter.launch("control", topology=str(file)))
        row.tally(failed=1)
        assert "edge.jwt.audiences" in said


async def test_no_key_leaves_the_machine_in_plain_text(report: Report):
    with report.case(35, "an API key in plain text to another host, by the SDK and by the command line") as row:
        for client in (hedgerow.Client, hedgerow.AsyncClient, hedgerow.VisionClient, hedgerow.AudioClient):
            with pytest.raises(hedgerow.InvalidArgument, match="allow_plaintext_key=True"):
                client(_ELSEWHERE, api_key="sesame")
            row.tally(failed=1)
        code, out, said = await run("ask", "?", "--gateway", _ELSEWHERE, HEDGEROW_API_KEY="sesame")
        row.tally(failed=1)
        assert (code, out) == (1, "")
        (line,) = said.splitlines()
        assert "--plaintext-key" in line
        assert "sesame" not in line
