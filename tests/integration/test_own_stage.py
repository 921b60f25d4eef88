"""A deployment's own stage in a real gateway: the class of docs/own-stage.md, and a service of its team's."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from services.runtime.security.tls import plain
from tests.contract.test_pages import DOCUMENTS, blocks
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.faulty_llm import FaultyLlm, faulty_llm
from tests.fault.mesh import processes
from tests.waiting import until

_PAGE = next(page for page in DOCUMENTS if page.name == "own-stage.md")
# A busy machine is no service that is slow.
_PATIENT = """

from services.gateway.settings.answer_time import StageBudget

AccountStage.budget = StageBudget(share=0.3, cap_ms=10_000)
"""


@dataclass(frozen=True, slots=True)
class Scene:
    caller: Asker
    llm: FaultyLlm


async def _get(user: bytes, context: grpc.aio.ServicerContext) -> bytes:
    """The team's service: it knows two users, is slow for one and breaks over another."""
    if user == b"slow":
        await asyncio.Event().wait()
    if user == b"late":
        await asyncio.sleep(5)
        return user
    if user == b"broken":
        await context.abort(grpc.StatusCode.INTERNAL, "no database")
    return json.dumps({"plan": {b"ada": "gold", b"bob": "free"}[user]}).encode()


@asynccontextmanager
async def _accounts() -> AsyncIterator[str]:
    server = grpc.aio.server()
    get = {"Get": grpc.unary_unary_rpc_method_handler(_get)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("team.Accounts", get),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with _accounts() as accounts, faulty_llm() as llm, processes(tmp_path / "logs") as starter:
        (tmp_path / "team").mkdir()
        code = blocks(_PAGE, "python")[0].replace("127.0.0.1:50071", accounts)
        (tmp_path / "team" / "account.py").write_text(code + _PATIENT)
        cache = await starter.start("cache")
        address = f"127.0.0.1:{free_port()}"
        environment = {
            "HEDGEROW_GATEWAY_ADDRESS": address,
            "HEDGEROW_GATEWAY_LLM_ADDRESSES": json.dumps({MODEL: llm.address}),
            "HEDGEROW_GATEWAY_CACHE_ADDRESS": cache.spec.address,
            "HEDGEROW_GATEWAY_ROUTER_ADDRESS": "",
            "HEDGEROW_GATEWAY_STAGE_CAPS_MS": '{"cache": 10000}',
            "HEDGEROW_GATEWAY_OWN_STAGES": '["team.account:AccountStage"]',
            "PYTHONPATH": f"{tmp_path}:{':'.join(filter(None, sys.path))}",
        }
        gateway = ServiceProcess(ServiceSpec("gateway", "services.gateway", address, environment), tmp_path / "logs")
        try:
            await gateway.wait_serving()
            async with asking(address) as caller:
                yield Scene(caller, llm)
        finally:
            await gateway.stop()


async def test_lines_of_the_stage_are_context_and_part_of_the_cache_key(scene: Scene):
    first = await scene.caller.ask("What may I do?", end_user=["ada"])
    assert first.ok, first
    assert first.stage("account").detail == "lines of context: 1"
    assert scene.llm.attempts[-1].question == "Context:\n- plan: gold\n\nQuestion: What may I do?"
    again = await until(lambda: scene.caller.ask("What may I do?", end_user=["ada"]), holds=_is_hit)
    assert again.ok
    other = await scene.caller.ask("What may I do?", end_user=["bob"])
    assert not _is_hit(other)
    assert "plan: free" in scene.llm.attempts[-1].question


def _is_hit(outcome: object) -> bool:
    return outcome.final.cache.verdict == pb.CACHE_VERDICT_EXACT  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("user", "outcome", "degraded"),
    [
        ("slow", pb.STAGE_OUTCOME_OVERRUN, "account:budget"),
        ("broken", pb.STAGE_OUTCOME_FAILED, "account:unavailable"),
    ],
)
async def test_an_answer_goes_on_without_its_lines_and_is_not_stored(
    scene: Scene, user: str, outcome: pb.StageOutcome, degraded: str
):
    for _ in range(2):
        answer = await scene.caller.ask("What may I do?", end_user=[user], budget_ms=10_000)
        assert answer.whole
        assert list(answer.final.degraded) == [degraded]
        assert answer.stage("account").outcome == outcome
        assert not _is_hit(answer)
    assert scene.llm.attempts[-1].question == "What may I do?"


async def test_a_usual_server_does_not_end_a_long_call_for_the_gateways_pings():
    async def answer_of(identity: str) -> object:
        async with _accounts() as accounts, plain(accounts, identity) as channel:
            return await channel.unary_unary("/team.Accounts/Get")(b"late", timeout=30)

    assert await asyncio.gather(answer_of("account"), answer_of("tool")) == [b"late", b"late"]
