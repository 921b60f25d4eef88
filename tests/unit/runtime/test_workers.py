from __future__ import annotations

import os

import pytest

from hedgerow.restarts import FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S, Pauses
from services.gateway.config import GatewaySettings
from services.router.config import RouterSettings
from services.runtime.process.server import server_options
from services.runtime.process.workers import (
    PortTaken,
    Worker,
    _Parent,
    claim,
)
from tests.clock import on_paused_loop


def gateway(**settings: object) -> GatewaySettings:
    given = {"llm_addresses": {"m": "127.0.0.1:50053"}, "plaintext": True, "allow_anonymous": True, **settings}
    return GatewaySettings.model_validate(given)


def test_a_process_that_nobody_marked_is_no_worker() -> None:
    assert Worker.current({"HEDGEROW_GATEWAY_WORKERS": "4"}) is None


def test_a_worker_knows_itself_by_its_mark() -> None:
    worker = Worker(3, (50050,))
    assert Worker.current(worker.mark) == worker


@pytest.mark.parametrize(
    ("address", "shared"),
    [("127.0.0.1:0", "127.0.0.1:4242"), ("[::1]:50050", "[::1]:4242"), ("0.0.0.0:0", "0.0.0.0:4242")],
)
def test_workers_share_the_port_that_their_parent_has(address: str, shared: str) -> None:
    assert Worker(2, (4242,)).own(gateway(address=address, plaintext=True)).address == shared


def test_workers_have_metrics_on_ports_of_their_own() -> None:
    settings = gateway(metrics_address="127.0.0.1:9464")
    assert [Worker(number, (1,)).own(settings).metrics_address for number in (1, 2)] == [
        "127.0.0.1:9465",
        "127.0.0.1:9466",
    ]


def test_workers_have_no_metrics_where_none_are_served() -> None:
    assert Worker(2, (1,)).own(gateway()).metrics_address == ""


@pytest.mark.parametrize(("workers", "shared"), [(1, 0), (2, 1)])
def test_a_port_is_shared_only_on_purpose(workers: int, shared: int) -> None:
    assert dict(server_options(gateway(workers=workers)))["grpc.so_reuseport"] == shared


def test_services_without_workers_are_one_process() -> None:
    models = [{"name": "m", "tier": "fast", "context_tokens": 1}]
    assert RouterSettings.model_validate({"models": models}).processes == 1


def test_a_worker_that_keeps_dying_is_started_ever_more_seldom_up_to_a_bound() -> None:
    pauses = Pauses()
    waited = [pauses.after(lived_s=0.5) for _ in range(10)]
    assert waited[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert waited[-1] == LONGEST_PAUSE_S


def test_a_worker_that_lived_long_is_started_again_soon() -> None:
    pauses = Pauses()
    for _ in range(10):
        pauses.after(lived_s=0.5)
    assert pauses.after(lived_s=STEADY_S) == FIRST_PAUSE_S
    assert pauses.after(lived_s=0.5) == 2 * FIRST_PAUSE_S


@pytest.mark.parametrize("address", ["unix:/tmp/gateway.sock", "127.0.0.1", "127.0.0.1:http-alt-x"])
def test_what_is_no_host_and_port_cannot_be_shared(address: str) -> None:
    with pytest.raises(PortTaken, match="is no host and port to share"):
        claim(address)


def test_a_worker_that_cannot_be_started_for_a_while_is_tried_again_and_ends_no_other() -> None:
    starts = list[Worker]()

    class Parent(_Parent):
        async def _run_once(self, worker: Worker) -> int:
            starts.append(worker)
            if len(starts) < 3:
                raise BlockingIOError(11, "Resource temporarily unavailable")  # no process more for this user
            self._stop.set()
            return 0

    parent = Parent(["true"], 1)
    assert on_paused_loop(parent._keep(Worker(1, ()))) == 0
    assert len(starts) == 3
    for end in (parent._pipe_in, parent._pipe_out):
        os.close(end)
