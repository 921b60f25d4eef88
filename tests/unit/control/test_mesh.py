"""Changes of topology, names and health, and their notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest
from grpc_health.v1 import health_pb2

from services.control.members import Health, ResolvedNames
from services.control.mesh import MeshState
from services.control.snapshot import ASSIGNMENTS, Kind, Renderer
from services.control.topology import BadTopology
from tests.unit.control.test_members import ScriptedResolver
from tests.unit.control.topologies import HERE, topology
from tests.waiting import until

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
ONE = 'services: {cache: {endpoints: [{address: "10.0.0.1:1"}]}}'
TWO = 'services: {cache: {endpoints: [{address: "10.0.0.1:1"}, {address: "10.0.0.2:1"}]}}'
NAMED = 'services: {cache: {endpoints: [{address: "cache.mesh:1"}]}}'


class ScriptedChannel:
    """A channel to an endpoint whose health a test says."""

    def __init__(self, target: str, identity: str):
        self.target, self.identity, self.closed = target, identity, False
        self.words: asyncio.Queue[Any] = asyncio.Queue()

    def unary_stream(self, *_: Any, **__: Any) -> Callable[..., Any]:
        return lambda *_, **__: self

    unary_unary = unary_stream  # stubs are made for both

    async def read(self) -> Any:
        return health_pb2.HealthCheckResponse(status=await self.words.get())

    def cancel(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True


class World:
    """A running mesh, its endpoints, and the topologies that it is given."""

    def __init__(self, text: str, timeout_s: float = 30, **addresses: list[str]):
        self.channels: list[ScriptedChannel] = []
        self.resolver = ScriptedResolver(**{name.replace("_", "."): found for name, found in addresses.items()})
        self.topologies: asyncio.Queue[Renderer | BadTopology] = asyncio.Queue()
        self.mesh = MeshState(
            Renderer(topology(text), HERE), ResolvedNames(0.1, self.resolver), self._dial, health_timeout_s=timeout_s
        )

    def _dial(self, target: str, service: str) -> Any:
        self.channels.append(ScriptedChannel(target, service))
        return self.channels[-1]

    async def given(self) -> AsyncIterator[Renderer | BadTopology]:
        while True:
            yield await self.topologies.get()

    def give(self, text: str) -> None:
        self.topologies.put_nowait(Renderer(topology(text), HERE))

    async def channel(self, number: int) -> ScriptedChannel:
        await until(lambda: len(self.channels) > number)
        return self.channels[number]

    async def say(self, target: str, status: Any) -> None:
        def found() -> list[ScriptedChannel]:
            return [each for each in self.channels if each.target == target and not each.closed]

        await until(lambda: bool(found()))
        found()[0].words.put_nowait(status)

    def healths(self) -> dict[str, Health]:
        return {each.member.address: each.health for each in self.mesh.seen("cache")}

    def in_service(self) -> list[str]:
        return [each.member.address for each in self.mesh.seen("cache") if each.in_service]


Begin = Callable[..., World]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    """Runs meshes, and ends them after the test."""
    running: list[asyncio.Task[None]] = []

    def begin(text: str, **options: Any) -> World:
        world = World(text, **options)
        running.append(asyncio.create_task(world.mesh.run(world.given(), resolve_interval_s=0.005)))
        return world

    yield begin
    for task in running:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


async def test_the_first_round_ends_when_every_endpoint_has_answered(begin: Begin):
    world = begin(TWO)
    await world.say("10.0.0.1:1", SERVING)
    await until(lambda: world.healths().get("10.0.0.1:1") is Health.SERVING)
    assert not world.mesh.settled.is_set()
    await world.say("10.0.0.2:1", NOT_SERVING)
    await asyncio.wait_for(world.mesh.settled.wait(), 10)
    assert world.in_service() == ["10.0.0.1:1"]


async def test_the_first_round_ends_after_a_while_with_silent_endpoints(begin: Begin):
    world = begin(TWO, timeout_s=0.01)
    await asyncio.wait_for(world.mesh.settled.wait(), 10)
    await until(lambda: set(world.healths().values()) == {Health.UNREACHABLE})
    assert world.in_service() == ["10.0.0.1:1", "10.0.0.2:1"]


async def test_a_listener_is_notified_of_changes_only(begin: Begin):
    world = begin(TWO)
    await world.say("10.0.0.1:1", SERVING)
    await until(lambda: world.in_service() == ["10.0.0.1:1"])
    with world.mesh.listening() as changed:
        before = world.mesh.version
        await world.say("10.0.0.2:1", SERVING)
        await asyncio.wait_for(changed.wait(), 10)
        assert world.mesh.version != before
        changed.clear()
        world.give(TWO)
        await world.say("10.0.0.2:1", SERVING)
        await until(lambda: world.topologies.empty() and world.channels[1].words.empty())
        assert not changed.is_set()


async def test_a_new_endpoint_gets_no_calls_before_it_has_answered_and_one_that_is_gone_is_not_watched(begin: Begin):
    world = begin(ONE)
    await world.say("10.0.0.1:1", SERVING)
    await until(lambda: world.healths() == {"10.0.0.1:1": Health.SERVING})
    world.give(TWO)
    await world.channel(1)
    assert world.in_service() == ["10.0.0.1:1"]
    await world.say("10.0.0.2:1", SERVING)
    await until(lambda: world.in_service() == ["10.0.0.1:1", "10.0.0.2:1"])
    assert len(world.channels) == 2  # the first is still watched as it was
    world.give(ONE)
    await until(lambda: world.channels[1].closed)
    assert world.healths() == {"10.0.0.1:1": Health.SERVING}


async def test_a_changed_identity_opens_a_new_channel(begin: Begin):
    world = begin(ONE)
    assert (await world.channel(0)).identity == "cache"
    world.give(ONE.replace("cache: {", "cache: {identity: llm, "))
    assert (await world.channel(1)).identity == "llm"
    await until(lambda: world.channels[0].closed)


async def test_a_topology_that_cannot_be_used_changes_nothing_but_says_why(begin: Begin):
    world = begin(ONE)
    await world.say("10.0.0.1:1", SERVING)
    await until(lambda: world.healths() == {"10.0.0.1:1": Health.SERVING})
    before = world.mesh.version
    world.topologies.put_nowait(BadTopology("topology: services: too many cooks"))
    await until(lambda: world.mesh.problem == "topology: services: too many cooks")
    assert world.mesh.version == before
    world.give(ONE)
    await until(lambda: world.mesh.problem == "")


async def test_a_topology_is_called_bad_until_a_good_one_is_in_force(begin: Begin):
    world = begin(ONE, cache_mesh=None)  # a name whose look-up takes its time
    await until(lambda: world.mesh.version != "")
    before = world.mesh.version
    world.topologies.put_nowait(BadTopology("topology: services: too many cooks"))
    await until(lambda: world.mesh.problem != "")
    world.give(NAMED)
    while world.mesh.problem:
        assert world.mesh.version == before
        await asyncio.sleep(0.001)
    assert world.mesh.version != before


async def test_names_are_followed_and_the_last_answer_stands_when_there_is_none(begin: Begin):
    world = begin(NAMED, cache_mesh=["10.0.0.1"])
    await until(lambda: list(world.healths()) == ["10.0.0.1:1"])
    world.resolver.addresses["cache.mesh"] = ["10.0.0.1", "10.0.0.2"]
    await until(lambda: list(world.healths()) == ["10.0.0.1:1", "10.0.0.2:1"])
    world.resolver.addresses["cache.mesh"] = []
    await world.say("10.0.0.2:1", SERVING)
    await until(lambda: world.in_service() == ["10.0.0.2:1"])
    assert list(world.healths()) == ["10.0.0.1:1", "10.0.0.2:1"]


async def test_clients_get_nothing_for_a_name_that_was_never_found(begin: Begin):
    world = begin(NAMED, cache_mesh=[])
    await asyncio.wait_for(world.mesh.settled.wait(), 10)
    assert world.mesh.snapshot("", Kind.GRPC)[ASSIGNMENTS]["cache"].body is None


async def test_a_watch_that_breaks_is_begun_again_and_breaks_no_other(begin: Begin, caplog: pytest.LogCaptureFixture):
    world = begin(TWO, timeout_s=0.05)

    async def broken() -> Any:
        raise KeyError("a bug")

    (await world.channel(0)).read = broken  # type: ignore[method-assign]
    await until(lambda: len([each for each in world.channels if each.target == world.channels[0].target]) > 1)
    assert "its health cannot be watched" in caplog.text
