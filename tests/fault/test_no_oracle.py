"""Answers and reports reveal nothing of other tenants' prompts, nor of the mesh behind the gateway."""

from __future__ import annotations

import asyncio
import itertools
import re
import statistics
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import status_pb2

from hedgerow.channel import done_sending, open_channel, send
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from launcher.processes import free_port
from tests.fault.asking import MODEL, question
from tests.fault.faulty_llm import Behaviour, FaultyLlm, faulty_llm
from tests.fault.mesh import Processes
from tests.fault.prompted_llm import prompted_llm
from tests.fault.report import Report
from tests.keys import digest
from tests.models import MODELS

pytestmark = [pytest.mark.measures, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
_GROUP = ("c", "d")  # tenants that the operator lets share


@dataclass(slots=True)
class Got:
    """Everything that a caller got of one call, as text, and what may be read of it."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    said: list[str] = field(default_factory=list)
    final: pb.Final | None = None
    first_s: float = 0.0

    @property
    def account(self) -> str:
        """The report of the answer, without times, the answer's own names and the length of its prompt."""
        if self.final is None:
            return f"{self.code.name}: {self._plain(' '.join(self.said))}"
        shown = pb.Final()
        shown.CopyFrom(self.final)
        for name in ("trace_id", "text", "ttft_ms", "total_ms", "budget_ms", "usable_ms"):
            shown.ClearField(name)
        shown.cache.ClearField("key")
        for stage in shown.stages:
            stage.spent_ms = stage.started_ms = stage.budget_ms = 0
        for made in shown.decisions:
            made.at_ms = 0
            made.subject = re.sub(r"#\d", "#", made.subject)  # which of the replicas it is, chance decides
        return self._plain(str(shown))

    @staticmethod
    def _plain(text: str) -> str:
        return re.sub(r"[0-9a-f]{32}|\d+", "…", text)

    def take(self, *messages: Message) -> None:
        self.said += map(str, messages)

    def take_metadata(self, *metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
        for key, value in itertools.chain(*(one or () for one in metadata)):
            self.said.append(f"{key}: {_readable(value)}")


def _readable(value: str | bytes) -> str:
    """The value as text; `grpc-status-details-bin`, which carries an error's details, is decoded."""
    return value if isinstance(value, str) else str(status_pb2.Status.FromString(value))


class Listener:
    """A caller that keeps all it gets."""

    def __init__(self, channel: grpc.aio.Channel, tenant: str = ""):
        self._stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
        self._metadata = (("authorization", f"Bearer key-{tenant}"),) if tenant else ()
        self.heard: list[Got] = []

    # The deadline is behind the gateway's budget of 30 s: which of the two holds is part of the report.
    async def ask(self, request: pb.GenerateRequest) -> Got:
        return await self._listen(self._stub.Generate(request, timeout=60, metadata=self._metadata))

    async def ask_all(self, *requests: pb.GenerateRequest) -> Got:
        batch = pb.GenerateBatchRequest(requests=requests)
        return await self._listen(self._stub.GenerateBatch(batch, timeout=60, metadata=self._metadata))

    async def converse(self, request: pb.GenerateRequest) -> Got:
        call = self._stub.Converse(timeout=60, metadata=self._metadata)
        await send(call, pb.ConverseRequest(options=pb.ConverseOptions(request=request)))
        await done_sending(call)
        return await self._listen(call)

    async def _listen(self, call: Any) -> Got:
        got, started = Got(), time.monotonic()
        self.heard.append(got)
        try:
            got.take_metadata(await call.initial_metadata())
            while (message := await call.read()) is not grpc.aio.EOF:
                got.take(message)
                for event in getattr(message, "events", ()):
                    if event.HasField("delta") and not got.first_s:
                        got.first_s = time.monotonic() - started
                    if event.HasField("final"):
                        got.final = event.final
            got.take_metadata(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            got.code = error.code()
            got.said.append(error.details() or "")
            got.take_metadata(error.initial_metadata(), error.trailing_metadata())
        return got


@asynccontextmanager
async def listening(address: str, *tenants: str) -> AsyncIterator[list[Listener]]:
    async with AsyncExitStack() as stack:
        yield [Listener(await stack.enter_async_context(open_channel(address)), tenant) for tenant in tenants]


def _prompt(kind: str, number: int, ending: str = "What is it about?") -> pb.GenerateRequest:
    """A long prompt with a beginning of its own. Not for the cache of answers, which has a test of its own."""
    system = f"Document {kind} {number}. " + f"The fox number {number} of {kind} ran to the river. " * 40
    request = question(ending, bypass=True, max_tokens=1)
    request.prompt.diet = pb.DIET_OFF  # it says the same again and again
    request.messages.insert(0, chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=system))
    return request


def _tenants() -> dict[str, Any]:
    return {
        name: {
            "keys": [digest(f"key-{name}")],
            "prefix_group": "docs" if name in _GROUP else "",
        }
        for name in ("a", "b", *_GROUP)
    }


@asynccontextmanager
async def _llms(starter: Processes, real: bool) -> AsyncIterator[list[str]]:
    """Two replicas that keep what they have read of prompts: vLLM with the demo model, or simulated."""
    async with AsyncExitStack() as stack:
        if not real:
            yield [await stack.enter_async_context(prompted_llm()) for _ in range(2)]
            return
        vllm = {"model": str(MODELS / "demo-llm-draft"), "max_model_len": 2048, "enforce_eager": True}
        settings = {f"vllm__{name}": value for name, value in vllm.items()}
        processes = [starter.launch("llm", model_name=MODEL, **settings) for _ in range(2)]
        await asyncio.gather(*(process.wait_serving(300) for process in processes))
        yield [process.spec.address for process in processes]


async def test_nothing_a_tenant_gets_depends_on_what_another_asked(starter: Processes, report: Report, full_size: bool):
    prompts = 60 if full_size else 12
    async with _llms(starter, real=full_size) as llms:
        gateway = await starter.gateway(
            *llms, tenants=_tenants(), hedge={"mode": "off"}
        )  # which call is late is random
        async with listening(gateway.spec.address, "a", "b", *_GROUP) as (a, b, c, d):
            for number in range(prompts):
                await a.ask(_prompt("asked", number))
            again = [await a.ask(_prompt("asked", number)) for number in range(prompts)]
            assert all(got.final.usage.cached_prompt_tokens for got in again)  # there is something to be had
            assert all("matched" in got.account for got in again)
            with report.case(28, "B asks A's prompts, whole and nearly, and others; two replicas") as row:
                whole, nearly, others = [], [], []
                for number in range(prompts):  # one after the other, so that time is the same for all
                    others.append(await b.ask(_prompt("fresh", number)))
                    ending = "What is it about?" if number % 2 else "Who is in it?"
                    (whole if number % 2 else nearly).append(await b.ask(_prompt("asked", number, ending)))
                row.tally(ok=len(b.heard))
                assert not any(got.final.usage.cached_prompt_tokens for got in b.heard)
                assert {got.account for got in whole} == {got.account for got in others}
                assert {got.account for got in nearly} == {got.account for got in others}
                ratio = _median(whole + nearly) / _median(others)
                row.measured("first text of A's prompts off by", abs(ratio - 1) * 100, 10, " %", slack=5)
            with report.case(28, "tenants C and D, which the operator lets share") as row:
                first = await c.ask(_prompt("shared", 0))
                second = await d.ask(_prompt("shared", 0))
                row.tally(ok=2)
                assert not first.final.usage.cached_prompt_tokens
                assert second.final.usage.cached_prompt_tokens
                assert [made.action for made in second.final.decisions] == ["matched"]


def _median(heard: list[Got]) -> float:
    return statistics.median(got.first_s for got in heard)


async def test_no_answer_and_no_error_names_an_address_a_port_or_a_file(
    starter: Processes, llm: FaultyLlm, report: Report
):
    gone = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    unreachable = "no-such-host.invalid:50053"
    others = {"vision_address": gone[0], "audio_address": gone[1], "cache_address": gone[0], "router_address": gone[1]}
    usual = {"ready_wait_ms": 0, "stall_ms": 100, "hedge": {"mode": "fixed", "delay_ms": 20, "max_share": 1}}
    usual["ready"] = {"models": 0, "unreached_ms": 0}  # two of them have no model, and are not waited for
    async with faulty_llm() as second:
        ill, away, unknown = await asyncio.gather(
            starter.gateway(llm.address, second.address, **others, **usual, breaker={"open_ms": 1}),
            starter.gateway(*gone, **others, **usual),
            starter.gateway(unreachable, **others, **usual),
        )
        gateways = (ill, away, unknown)
        with report.case(
            28, "everything a caller gets of a mesh in which all fails: no address, no port, no path"
        ) as row:
            heard: list[Got] = []
            for gateway in gateways:
                async with listening(gateway.spec.address, "") as (caller,):
                    if gateway is ill:
                        await _suffer(caller, llm, second)
                    for _ in range(12):  # beyond the opening of every breaker
                        await caller.ask(question(f"Question {time.monotonic_ns()}?"))
                    await _ask_for_everything(caller)
                    heard += caller.heard
            row.tally(ok=sum(got.final is not None for got in heard), failed=sum(got.final is None for got in heard))
            shown = "\n".join(itertools.chain(*(got.said for got in heard)))
            expected = [f"{MODEL}#1", f"{MODEL}#2", "hedge", "retry", "failover", "breaker", "budget"]
            assert [word for word in expected if word not in shown] == []
            assert len({got.code for got in heard}) > 3, {got.code for got in heard}
            secrets = [*gone, unreachable, llm.address, second.address, *(each.spec.address for each in gateways)]
            hidden = [secret.rpartition(":") for secret in secrets]
            words = {"127.0.0.1", "localhost", "no-such-host", "/tmp/", ".py", "site-packages", str(Path.cwd())}
            words |= {f":{port}" for _, _, port in hidden}
            for got in heard:
                said = "\n".join(got.said)
                assert [word for word in words if word in said] == [], said


async def _suffer(caller: Listener, *llms: FaultyLlm) -> None:
    """All that two replicas can do to an answer."""
    for number in range(60):  # requests earn the retries and second calls of others
        await caller.ask(question(f"Well {number}?", bypass=True))
    failing = [
        Behaviour(fail_share=1),
        Behaviour(first_ms=100),
        Behaviour(tokens=50, break_after=2),
        Behaviour(tokens=50, each_ms=5, stall_after=2),
        Behaviour(throttle_s=0.01),
        Behaviour(secret="/srv/models at 127.0.0.1:50053"),
        Behaviour(tokens=500, each_ms=20),
    ]
    for how, both in itertools.product(failing, (False, True)):
        for _ in range(3):
            for each in llms:
                each.reset()
            for each in llms if both else [llms[len(caller.heard) % 2]]:
                each.behaviour = how
            await caller.ask(question(f"Ill {time.monotonic_ns()}?", bypass=True, budget_ms=350))
    for each in llms:
        each.reset()


async def _ask_for_everything(caller: Listener) -> None:
    """Each kind of request, right and wrong."""
    picture, recording = pb.Image(data=b"no picture"), pb.Audio(data=b"no recording")
    for _ in range(7):  # beyond the opening of their breakers
        await caller.ask(question(images=[picture]))
        await caller.ask(question(audio=recording))
    await caller.ask(pb.GenerateRequest(audio=recording, model=MODEL))
    await caller.ask(question(images=[picture], audio=recording))
    await caller.ask_all(question("One?"), question("", model="nobody"), question(model=""))
    await caller.converse(question(model=MODEL))
    await caller.converse(pb.GenerateRequest())
    wrong: list[dict[str, Any]] = [
        {"model": "nobody"},
        {"tier": 9},
        {"budget_ms": 0},
        {"attempt": -1},
        {"images": [pb.Image()] * 9},
        {"response_format": chat_pb2.ResponseFormat(json_schema="{")},
    ]
    for fields in wrong:
        await caller.ask(question(**fields))
    await caller.ask(question("", budget_ms=1))
