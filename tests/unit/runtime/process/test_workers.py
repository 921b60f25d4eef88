from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.gateway.config import GatewaySettings
from services.runtime.process.ports import Claims, PortTaken, claim
from services.runtime.process.server import server_options
from services.runtime.process.workers import Worker, Workers, _SupervisedWorker
from tests.clock import on_paused_loop


def gateway(**settings: object) -> GatewaySettings:
    given = {"llm_addresses": {"m": "127.0.0.1:50053"}, "plaintext": True, "allow_anonymous": True, **settings}
    return GatewaySettings.model_validate(given)


@pytest.mark.parametrize(
    ("address", "shared"),
    [("127.0.0.1:0", "127.0.0.1:4242"), ("[::1]:50050", "[::1]:4242"), ("0.0.0.0:0", "0.0.0.0:4242")],
)
def test_workers_share_the_port_that_their_parent_has(address: str, shared: str) -> None:
    assert Worker(2, [4242]).own(gateway(address=address, plaintext=True)).address == shared


def test_workers_have_metrics_on_ports_of_their_own() -> None:
    settings = gateway(metrics_address="127.0.0.1:9464")
    assert [Worker(number, [1]).own(settings).metrics_address for number in (1, 2)] == [
        "127.0.0.1:9465",
        "127.0.0.1:9466",
    ]
    assert Worker(2, [1]).own(gateway()).metrics_address == ""


@pytest.mark.parametrize(("workers", "shared"), [(1, 0), (2, 1)])
def test_a_port_is_shared_only_on_purpose(workers: int, shared: int) -> None:
    assert dict(server_options(gateway(workers=workers)))["grpc.so_reuseport"] == shared


@pytest.mark.parametrize("address", ["unix:/tmp/gateway.sock", "127.0.0.1", "127.0.0.1:http-alt-x"])
def test_only_a_host_and_port_can_be_shared(address: str) -> None:
    with pytest.raises(PortTaken, match="is no host and port to share"):
        claim(address)


def of_two(kind: type[Workers]) -> Workers:
    """Two workers, none of which runs yet."""
    settings, claims = gateway(address="127.0.0.1:0", workers=2), Claims()
    claims.add("gateway", settings)
    return kind({"name": "gateway", "environment": "old"}, settings, claims)


@pytest.mark.parametrize(
    ("ends", "serves"),
    [
        ([BlockingIOError(11, "Resource temporarily unavailable")] * 2, False),  # no process more for this user
        ([-9, 2, 2], True),  # a file that its settings name is gone, for now
    ],
    ids=["it cannot be started", "it has served and cannot start again"],
)
def test_a_worker_that_does_not_run_for_a_while_is_tried_again_and_ends_no_other(
    ends: list[int | OSError], serves: bool
) -> None:
    left = [*ends]

    class Failing(Workers):
        async def _run_once(self, kept: _SupervisedWorker) -> int:
            if serves and len(left) == len(ends):
                kept.serving.set()
            if not left:
                kept.stop.set()
                return 0
            if isinstance(end := left.pop(0), OSError):
                raise end
            return end

    workers = of_two(Failing)
    assert on_paused_loop(workers._keep(workers._workers[1])) == 0
    assert left == []
    assert not workers.stop.is_set()


class _Answers:
    """The orders of a worker that answers each with the next of `answers`; an exception is its end."""

    def __init__(self, *answers: str | OSError):
        self.answers, self.given = list(answers), list[object]()

    async def give(self, members: Sequence[Mapping[str, object]], **more: object) -> str:
        self.given.append((members[0]["environment"], more["worker"][0]))  # type: ignore[index]
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


class _Scripted(Workers):
    """Workers that answer their orders by a script, without a process. Those in `broken` end before they serve."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.broken = set[int]()

    async def _run_once(self, kept: _SupervisedWorker) -> int:
        if kept.number in self.broken:
            return 1
        kept.orders = _Answers("", "", "")  # type: ignore[assignment]
        await self._serve(kept)
        await kept.stop.wait()
        return 0


def serving(first: _Answers, second: _Answers) -> Workers:
    """Two that serve, and answer their next orders by these."""
    workers = of_two(_Scripted)
    for kept, orders in zip(workers._workers.values(), (first, second), strict=True):
        kept.orders = orders  # type: ignore[assignment]
        kept.serving.set()
    return workers


async def bring(workers: Workers, count: int = 2) -> None:
    await workers.bring({"name": "gateway", "environment": "new"}, gateway(address="127.0.0.1:0", workers=count))


async def test_an_order_is_tried_by_one_worker_and_then_given_to_the_others() -> None:
    first, second = _Answers(""), _Answers("")
    await bring(serving(first, second))
    assert (first.given, second.given) == ([("new", 1)], [("new", 2)])


@pytest.mark.parametrize(
    ("answer", "error"), [("port in use", "port in use"), (ConnectionResetError(), "it has ended")], ids=str
)
async def test_an_order_that_one_worker_does_not_come_to_serve_leaves_the_others_alone(
    answer: str | OSError, error: str
) -> None:
    first, second = _Answers(answer, ""), _Answers("")
    workers = serving(first, second)
    with pytest.raises(ValueError, match=f"worker 1: {error}"):
        await bring(workers)
    assert second.given == []
    await workers._serve(workers._workers[1])
    assert first.given == [("new", 1), ("old", 1)], "a worker that starts again serves as before"


async def test_an_order_that_a_later_worker_refuses_is_taken_back_from_the_first() -> None:
    first, second = _Answers("", ""), _Answers("gateway metrics_address: cannot listen")
    with pytest.raises(ValueError, match="worker 2: gateway metrics_address: cannot listen"):
        await bring(serving(first, second))
    assert first.given == [("new", 1), ("old", 1)]
    assert second.given == [("new", 2)], "the worker that refused keeps its services"


async def test_a_later_worker_that_ends_during_an_order_does_not_refuse_it() -> None:
    first, second = _Answers(""), _Answers(ConnectionResetError())
    await bring(serving(first, second))
    assert first.given == [("new", 1)]


async def test_a_worker_that_starts_during_an_order_gets_both() -> None:
    second = _Answers("", "")
    workers = serving(_Answers(""), second)
    late = workers._workers[2]
    late.serving.clear()
    bringing = asyncio.create_task(bring(workers))
    starting = asyncio.create_task(workers._serve(late))  # begins with the old settings or the new ones
    await asyncio.wait_for(asyncio.gather(bringing, starting), 5)
    assert second.given[-1] == ("new", 2)
    assert late.serving.is_set()


@asynccontextmanager
async def running() -> AsyncIterator[_Scripted]:
    """Two that serve, and are stopped in the end."""
    workers = of_two(_Scripted)
    assert isinstance(workers, _Scripted)
    task = asyncio.create_task(workers.run())
    await workers.started()
    yield workers
    workers.stop.set()
    assert await asyncio.wait_for(task, 5) == 0


async def test_additional_workers_serve_before_an_order_for_more_of_them_is_in_force() -> None:
    async with running() as workers:
        await bring(workers, 4)
        assert [each.number for each in workers._workers.values() if each.serving.is_set()] == [1, 2, 3, 4]


async def test_workers_that_are_too_many_have_ended_when_an_order_for_fewer_is_in_force() -> None:
    async with running() as workers:
        second = workers._workers[2].task
        await bring(workers, 1)
        assert second
        assert second.result() == 0
        assert list(workers._workers) == [1]
        await bring(workers, 2)
        assert workers._workers[2].serving.is_set(), "the number is free again"


async def test_an_additional_worker_that_does_not_come_to_serve_leaves_all_as_they_were() -> None:
    async with running() as workers:
        workers.broken.add(4)
        with pytest.raises(ValueError, match="worker 4: ended with exit code 1"):
            await bring(workers, 4)
        assert list(workers._workers) == [1, 2]
        first = workers._workers[1].orders
        assert isinstance(first, _Answers)
        assert first.given == [("old", 1), ("new", 1), ("old", 1)]


async def test_workers_that_do_not_come_to_serve_at_first_are_reported() -> None:
    workers = of_two(_Scripted)
    assert isinstance(workers, _Scripted)
    workers.broken.add(2)
    task = asyncio.create_task(workers.run())
    with pytest.raises(ValueError, match="worker 2: ended with exit code 1"):
        await workers.started()
    workers.stop.set()
    await task
