import asyncio

import grpc
import pytest
from prometheus_client import REGISTRY

from services.gateway.config import GatewaySettings
from services.gateway.upstream.assignment import Assignment
from services.gateway.upstream.balance import Locality
from services.gateway.upstream.members import Members
from services.gateway.upstream.replica import Replica
from tests.unit.gateway.scripted import ScriptedLlm, fleet
from tests.waiting import until

SETTINGS = GatewaySettings(llm_addresses={"small": "xds:///llm"}, ready={"unreached_ms": 0})


class SilentWatch:
    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.Event().wait()

    def cancel(self):
        pass


class ScriptedChannel:
    """Stays ready until it is closed."""

    def __init__(self):
        self.closed = asyncio.Event()
        self.grace_s = None

    def unary_stream(self, *_, **serializers):
        """A health service that never answers."""
        return lambda _: SilentWatch() if serializers else None

    def get_state(self, try_to_connect=False):
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, _):
        await asyncio.Event().wait()

    async def close(self, grace_s):
        self.grace_s = grace_s
        self.closed.set()


class Scene:
    """A pool whose replicas the control plane lists."""

    def __init__(self, group: asyncio.TaskGroup):
        self.pool = fleet(small=[]).pools["small"]
        self.channels: dict[str, ScriptedChannel] = {}
        self.members = Members(self.pool, SETTINGS, self._connect, group)

    def _connect(self, address: str) -> ScriptedChannel:
        self.channels[address] = ScriptedChannel()
        return self.channels[address]

    def listed(self, *addresses: str, priority: int = 0, drop_share: float = 0.0) -> list[str]:
        self.members.take(Assignment({address: Locality(priority) for address in addresses}, drop_share))
        return [replica.address for replica in self.pool.replicas]


@pytest.fixture
async def scene():
    async with asyncio.TaskGroup() as group:
        scene = Scene(group)
        yield scene
        scene.members.close()
    assert all(channel.closed.is_set() for channel in scene.channels.values())


@pytest.fixture
def replica() -> Replica:
    return fleet(small=ScriptedLlm()).pools["small"].replicas[0]


async def test_a_pool_without_replicas_refuses_with_the_reason(scene: Scene):
    assert scene.pool.is_open()
    assert scene.pool.pick() is None
    assert "no replica is in service" in scene.pool.refusal().message


async def test_replicas_come_and_go_as_they_are_listed(scene: Scene):
    assert scene.listed("a:1", "b:1") == ["a:1", "b:1"]
    assert scene.listed("b:1", "c:1") == ["b:1", "c:1"]


async def test_calls_that_wait_for_a_replica_look_again_when_it_is_not_listed_any_more(scene: Scene):
    scene.listed("a:1")
    with scene.pool.notice.listening() as changed:
        scene.listed()
        assert changed.is_set()


async def test_a_removed_replica_is_closed_when_its_calls_are_over(scene: Scene):
    scene.listed("a:1")
    await asyncio.sleep(0)
    scene.listed()
    await asyncio.wait_for(scene.channels["a:1"].closed.wait(), 5)
    assert scene.channels["a:1"].grace_s > 120, "longer than the longest budget"


async def test_a_removed_replica_is_in_no_metric(scene: Scene):
    def in_metrics() -> bool:
        return REGISTRY.get_sample_value("hedgerow_breaker_open", {"backend": "small@gone:1"}) is not None

    scene.listed("gone:1")
    assert in_metrics()
    scene.listed()
    await until(lambda: not in_metrics(), 5)


async def test_a_replica_that_stays_keeps_its_state_and_gets_its_new_priority(scene: Scene):
    scene.listed("a:1")
    (before,) = scene.pool.replicas
    scene.listed("a:1", priority=2)
    assert scene.pool.replicas == [before]
    assert before.locality.priority == 2
    assert len(scene.channels) == 1


async def test_a_drill_starts_and_ends(scene: Scene):
    scene.listed("a:1", drop_share=0.5)
    assert scene.pool.drop_share == 0.5
    scene.listed("a:1")
    assert scene.pool.drop_share == 0


def test_the_first_call_is_the_average_and_later_ones_move_it(replica: Replica):
    replica.answered(1.0)
    assert replica.first_s == 1.0
    for _ in range(50):
        replica.answered(0.1)
    assert replica.first_s == pytest.approx(0.1, rel=0.01)


def test_a_call_that_ended_without_a_text_counts_where_it_took_longer_than_usual(replica: Replica):
    replica.gave_up(5.0)  # nothing is known of it: a caller may have had little time
    assert not replica.first_s
    replica.answered(0.1)
    replica.gave_up(0.05)
    assert replica.first_s == 0.1
    replica.gave_up(1.2)
    assert replica.first_s == pytest.approx(0.3)
