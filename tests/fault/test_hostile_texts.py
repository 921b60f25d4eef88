"""Texts that make a careless function slow, in requests and in answers, and what another tenant notices of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from urllib.request import urlopen

import grpc
import httpx
import pytest
import pytest_asyncio

from hedgerow.gateway.v1 import gateway_pb2 as pb
from launcher.processes import free_port
from tests.fault.apart import apart
from tests.fault.asking import MODEL, Asked, Asker, asking, question, times_s
from tests.fault.beside import asking_beside, honest_for
from tests.fault.faulty_llm import Behaviour, faulty_llm
from tests.fault.mesh import processes
from tests.fault.report import Report, Row
from tests.forked import ServiceProcess
from tests.keys import tenants
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]
_GUARD = {
    **{"injection": "note", "secrets": "mask", "personal": "mask"},
    **{"answer_secrets": "mask", "answer_personal": "mask", "denied_phrases": ["project titan"]},
}
_BLOCKED = re.compile(r'hedgerow_loop_blocked_seconds_bucket\{function="(.*)",le="(.*)"\} (\S+)')
_BUDGET_MS = 20_000
_REPEATS = "repeats"  # the model that A asks
_HEADERS = {"authorization": "Bearer key-a", "x-hedgerow-budget-ms": f"{_BUDGET_MS}"}
_SIGNS = '\n\t."[{( :'
_ENDS = "。"  # each is the end of a sentence
_MOST = 262_144  # characters; a request has as many bytes at most


@dataclass(frozen=True, slots=True)
class Scene:
    """`attacked` is what tenant A needs: the addresses of gRPC and HTTP, and the key of an answer in the cache."""

    served: Sequence[ServiceProcess]
    b: Asker
    attacked: tuple[str, str, str]

    async def blocks(self) -> dict[tuple[str, float], float]:
        """How many blocks of each function there were, by their upper bounds in milliseconds."""
        found: dict[tuple[str, float], float] = {}
        for process in self.served:
            name = process.spec.module.rpartition(".")[2].upper()
            address = process.spec.environment[f"HEDGEROW_{name}_METRICS_ADDRESS"]
            for function, bound, blocks in _BLOCKED.findall(await asyncio.to_thread(_page, address)):
                found[function, float(bound) * 1000] = float(blocks)
        return found


def _page(address: str) -> str:
    return str(urlopen(f"http://{address}/metrics", timeout=5).read().decode())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A gateway that does all it can with tenant A's texts, a cache, a model, and one that repeats what A asks for."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        starter, llm = await enter(processes(tmp_path_factory.mktemp("texts"))), await enter(faulty_llm())
        (repeats,) = await enter(apart(_repeating_model))
        cache = await starter.start("cache", metrics_address=f"127.0.0.1:{free_port()}")
        given = tenants("a", "b")
        given["a"] |= {"guard": _GUARD, "prompt": {"diet": "all"}}
        http = f"127.0.0.1:{free_port()}"
        gateway = await starter.gateway(
            llm_addresses={MODEL: llm.address, _REPEATS: repeats},
            cache_address=cache.spec.address,
            tenants=given,
            metrics_address=f"127.0.0.1:{free_port()}",
            http_address=http,
            stages={"guard": {"share": 0.9, "cap_ms": _BUDGET_MS}},
        )
        address = gateway.spec.address
        a, b = [await enter(asking(address, f"key-{name}")) for name in "ab"]
        yield Scene((gateway, cache), b, (address, http, await _stored(a)))


async def _repeating_model() -> AsyncIterator[str]:
    """The address of a model that repeats the question."""
    async with faulty_llm() as llm:
        llm.behaviour = Behaviour(first_ms=5, repeats="Repeat")
        yield llm.address
        await asyncio.Event().wait()


async def _stored(a: Asker) -> str:
    """The key of an answer that the cache has."""
    keys: list[str] = []
    while not (keys and keys[-1]):
        outcome = await a.ask("What is kept?", budget_ms=_BUDGET_MS)
        assert outcome.final
        keys.append(outcome.final.cache.key)
    return keys[-1]


@dataclass(frozen=True, slots=True)
class TenantA:
    """Asks `_REPEATS`, in one way or another."""

    asker: Asker
    http: httpx.AsyncClient
    stored: str  # the key of an answer of its own in the cache

    async def generate(self, text: str) -> None:
        request = question(text, model=_REPEATS, budget_ms=_BUDGET_MS, sentence_ends=True)
        request.sampling.stop.append("</never>")
        ended = await Asked(self.asker.stub.Generate(request, timeout=60, metadata=self.asker.metadata)).end()
        assert ended.code is grpc.StatusCode.OK, ended.details

    async def completions(self, text: str) -> None:
        """As a stream, and as a whole."""
        asked = {"model": _REPEATS, "messages": [{"role": "user", "content": text}], "stop": ["</never>"]}
        for stream in (True, False):
            await self._post("/v1/chat/completions", {**asked, "stream": stream})

    async def messages(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        asked = {"model": _REPEATS, "max_tokens": 64, "messages": [{"role": "user", "content": content}]}
        for stream in (True, False):
            await self._post("/v1/messages", {**asked, "stop_sequences": ["</never>"], "stream": stream})

    async def wrong(self, text: str) -> None:
        """A report of a wrong hit, in both ways."""
        await self._post("/v1/cache/wrong", {"key": self.stored, "question": text})
        report = pb.ReportWrongRequest(key=self.stored, question=text)
        await self.asker.stub.ReportWrong(report, timeout=60, metadata=self.asker.metadata)

    async def _post(self, path: str, body: Mapping[str, Any]) -> None:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text[:200]


_WAYS: Mapping[str, Callable[[TenantA, str], Awaitable[None]]] = {
    "by gRPC": TenantA.generate,
    "by chat completions": TenantA.completions,
    "by messages": TenantA.messages,
    "in reports of wrong hits": TenantA.wrong,
}


async def _attack(address: str, http: str, stored: str, way: str, texts: Sequence[str]) -> AsyncIterator[int]:
    """A asks one question after the other, each in other words; the number of each that has ended."""
    page = httpx.AsyncClient(base_url=f"http://{http}", headers=_HEADERS, timeout=60)
    async with asking(address, "key-a") as asker, page:
        a = TenantA(asker, page, stored)
        for number, text in enumerate(cycle(texts)):
            await _WAYS[way](a, text.replace("#", f"{number}", 1))
            yield number


def _filled(sign: str) -> str:
    return "# ".ljust(_MOST - 8, sign)


def _marks(size: int) -> str:
    """A letter with marks that are not in their order."""
    half = (size - 64) // 4
    return "# a" + "\u0301" * half + "\u0327" * half


def _repeat(size: int, times: int, signs: str = _SIGNS) -> list[str]:
    return [f"Repeat {ord(sign)} {times} {size} #?" for sign in signs]


_MARKS = [_marks(131_072), _marks(_MOST)]
_ASKED = [_filled(sign) for sign in _SIGNS]
_AT_ONCE = _repeat(65_536, 65_536, _SIGNS + _ENDS)


@pytest.mark.parametrize(
    ("case", "fault", "way", "texts"),
    [
        *(pytest.param(41, "combining marks out of order", way, _MARKS, id=f"marks {way}") for way in _WAYS),
        *(pytest.param(42, f"{_MOST:,} equal signs", way, _ASKED, id=f"asked {way}") for way in _WAYS),
        pytest.param(42, "answers of equal signs, one at a time", "by gRPC", _repeat(1, 8_192), id="answers by 1"),
        pytest.param(42, "answers of equal signs, four at a time", "by gRPC", _repeat(4, 32_768), id="answers by 4"),
        pytest.param(42, "answers of equal signs, 64 at a time", "by gRPC", _repeat(64, _MOST), id="answers by 64"),
        *(
            pytest.param(42, "answers of 65,536 equal signs in one piece", way, _AT_ONCE, id=f"answers {way}")
            for way in ("by gRPC", "by chat completions", "by messages")
        ),
    ],
)
async def test_hostile_texts_of_one_tenant_delay_no_other(
    scene: Scene, report: Report, full_size: bool, case: int, fault: str, way: str, texts: Sequence[str]
):
    seconds = 20.0 if full_size else 1.0
    await honest_for(scene.b, seconds / 10)
    before, blocked = await honest_for(scene.b, seconds / 4), await scene.blocks()
    with report.case(case, f"A {way}: {fault}") as row:
        async with asking_beside(scene.b) as outcomes, apart(_attack, *scene.attacked, way, texts) as ended:
            with suppress(TimeoutError):  # all the time where it is measured, else until each text was sent once
                await until(lambda: not full_size and len(ended) >= len(texts), seconds)
        row.count(*outcomes)
        assert ended
        assert all(outcome.whole for outcome in (*before, *outcomes)), [each for each in outcomes if not each.whole][:2]
        row.slowed("B's p99", times_s(before), times_s(outcomes))
        _measure_blocks(row, blocked, await scene.blocks())


def _measure_blocks(row: Row, before: dict[tuple[str, float], float], after: dict[tuple[str, float], float]) -> None:
    """The longest block of an event loop since then, as the bucket's upper bound says it."""
    new = {key: times - before.get(key, 0) for key, times in after.items()}
    longest = 0.0
    for function in {function for function, _ in new}:
        bounds = sorted(bound for name, bound in new if name == function)
        total = new[function, bounds[-1]]
        longest = max(longest, next((bound for bound in bounds if total and new[function, bound] == total), 0.0))
    row.measured("event loop blocked", longest, 50, slack=40)
