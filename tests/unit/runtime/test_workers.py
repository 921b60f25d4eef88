from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from launcher.processes import free_port
from services.gateway.__main__ import SERVICE
from services.gateway.config import GatewaySettings
from services.runtime.process.config import RefusedSettings
from services.runtime.process.ports import PortTaken, claim
from services.runtime.process.server import server_options
from services.runtime.process.together import HostedService
from services.runtime.process.workers import Worker, _Parent
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
def test_what_is_no_host_and_port_cannot_be_shared(address: str) -> None:
    with pytest.raises(PortTaken, match="is no host and port to share"):
        claim(address)


def test_a_worker_that_cannot_be_started_for_a_while_is_tried_again_and_ends_no_other() -> None:
    starts = list[int]()

    class Parent(_Parent):
        async def _run_once(self, number: int) -> int:
            starts.append(number)
            if len(starts) < 3:
                raise BlockingIOError(11, "Resource temporarily unavailable")  # no process more for this user
            self._stop.set()
            return 0

    parent = Parent({"name": "gateway"}, gateway(address="127.0.0.1:0", workers=2))
    assert on_paused_loop(parent._keep(1)) == 0
    assert len(starts) == 3


def test_a_worker_that_has_served_and_cannot_start_again_ends_no_other() -> None:
    starts = list[int]()

    class Parent(_Parent):
        async def _run_once(self, number: int) -> int:
            starts.append(number)
            if len(starts) == 1:
                self._serving[number].set()
                return -9
            if len(starts) < 4:
                return 2  # a file that its settings name is gone, for now
            self._stop.set()
            return 0

    parent = Parent({"name": "gateway"}, gateway(address="127.0.0.1:0", workers=2))
    assert on_paused_loop(parent._keep(1)) == 0
    assert len(starts) == 4


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


class _Workers(_Parent):
    """Two that serve, and answer their orders by a script."""

    def __init__(self, first: _Answers, second: _Answers):
        super().__init__({"name": "gateway", "environment": "old"}, gateway(address="127.0.0.1:0", workers=2))
        self._orders = {1: first, 2: second}  # type: ignore[dict-item]
        for serving in self._serving.values():
            serving.set()


def wanted(workers: int = 2, **settings: object) -> list[HostedService]:
    given = {"name": "gateway", "environment": "new"}
    return [HostedService("gateway", SERVICE, gateway(address="127.0.0.1:0", workers=workers, **settings), given)]


async def test_an_order_is_tried_by_one_worker_and_then_given_to_the_others() -> None:
    first, second = _Answers(""), _Answers("")
    await _Workers(first, second)._bring(wanted())
    assert (first.given, second.given) == ([("new", 1)], [("new", 2)])


@pytest.mark.parametrize(
    ("answer", "error"), [("port in use", "port in use"), (ConnectionResetError(), "it has ended")], ids=str
)
async def test_an_order_that_one_worker_does_not_come_to_serve_leaves_the_others_alone(
    answer: str | OSError, error: str
) -> None:
    first, second = _Answers(answer, ""), _Answers("")
    parent = _Workers(first, second)
    with pytest.raises(ValueError, match=f"worker 1: {error}"):
        await parent._bring(wanted())
    assert second.given == []
    await parent._serve(1)
    assert first.given == [("new", 1), ("old", 1)], "a worker that starts again serves as before"


async def test_an_order_that_a_later_worker_refuses_is_taken_back_from_the_first() -> None:
    first, second = _Answers("", ""), _Answers("gateway metrics_address: cannot be had")
    parent = _Workers(first, second)
    with pytest.raises(ValueError, match="worker 2: gateway metrics_address: cannot be had"):
        await parent._bring(wanted())
    assert first.given == [("new", 1), ("old", 1)]
    assert second.given == [("new", 2)], "it has not changed"


async def test_a_later_worker_that_ends_during_an_order_does_not_refuse_it() -> None:
    first, second = _Answers(""), _Answers(ConnectionResetError())
    await _Workers(first, second)._bring(wanted())
    assert first.given == [("new", 1)]


async def test_the_ports_of_an_order_that_fails_are_free_again() -> None:
    port = free_port()
    with pytest.raises(ValueError, match="worker 1: it has ended"):
        await _Workers(_Answers(ConnectionResetError()), _Answers())._bring(wanted(http_address=f"127.0.0.1:{port}"))
    claim(f"127.0.0.1:{port}").close()


async def test_a_worker_that_starts_during_an_order_gets_both() -> None:
    second = _Answers("", "")
    parent = _Workers(_Answers(""), second)
    parent._serving[2].clear()
    bringing = asyncio.create_task(parent._bring(wanted()))
    starting = asyncio.create_task(parent._serve(2))  # begins with the old settings or the new ones
    await asyncio.wait_for(asyncio.gather(bringing, starting), 5)
    assert second.given[-1] == ("new", 2)
    assert parent._serving[2].is_set()


async def test_the_number_of_workers_stays() -> None:
    with pytest.raises(RefusedSettings, match="gateway: workers: 2 in this process, got 3"):
        await _Workers(_Answers(), _Answers())._bring(wanted(3))
