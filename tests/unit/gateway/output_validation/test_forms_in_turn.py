"""The order of answers that wait to be checked: tenants share the one thread by the time of their checks."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.gateway.output_validation import forms as under_test
from services.gateway.output_validation.forms import Checked, Forms
from services.gateway.output_validation.mismatch import Mismatch, Unchecked

pytestmark = pytest.mark.paused
_WHOLE_MS, _USUAL_MS = 200, 1
_WANTED = chat_pb2.ResponseFormat(json_object=True)
_OVER = "the schema asks for more work than there is time for"


class Bench:
    """Forms of tenants, and a thread that does one check at each call. `mallory`'s take their whole time."""

    def __init__(self) -> None:
        self.begun: list[str] = []  # tenants
        self.results: list[tuple[str, str]] = []  # tenants, and the result of each check
        self._running: list[asyncio.Future[Checked]] = []
        self.forms = Forms(_WHOLE_MS, self._begin)
        self._asked: list[asyncio.Task[None]] = []

    def _begin(self, wanted: chat_pb2.ResponseFormat, text: str, most_s: float) -> asyncio.Future[Checked]:
        self.begun.append(text)
        assert not any(not each.done() for each in self._running), "one at a time"
        self._running.append(asyncio.get_running_loop().create_future())
        return self._running[-1]

    async def come(self, tenant: str, count: int = 1, weight: float = 1.0, within_s: float = 60.0) -> None:
        """So many answers of `tenant` are whole now."""
        self._asked += [asyncio.create_task(self._ask(tenant, weight, within_s)) for _ in range(count)]
        await _settled()

    async def check(self, count: int = 1) -> None:
        """Have so many checks end."""
        for _ in range(count):
            hostile = self.begun[-1].startswith("mallory")
            done = Checked(Unchecked(_OVER), _WHOLE_MS / 1000) if hostile else Checked(None, _USUAL_MS / 1000)
            self._running[-1].set_result(done)
            await _settled()

    async def check_all(self) -> None:
        while not self._running[-1].done():
            await self.check()

    async def leave(self, number: int) -> None:
        """Cancel the request with this number, from 0 in the order of arrival."""
        self._asked[number].cancel()
        await _settled()

    async def _ask(self, tenant: str, weight: float, within_s: float) -> None:
        try:
            found: Mismatch | Unchecked | None = await self.forms.mismatch(tenant, weight, _WANTED, tenant, within_s)
        except Unchecked as problem:
            found = problem
        self.results.append((tenant, "valid" if found is None else str(found)))


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_flood_of_hostile_forms_delays_an_ordinary_one_by_one_check() -> None:
    bench = Bench()
    await bench.come("mallory", 50)
    await bench.come("acme")
    await bench.check(2)
    assert bench.begun[:2] == ["mallory", "acme"]
    assert bench.results == [("mallory", _OVER), ("acme", "valid")]
    await bench.check_all()
    assert Counter(bench.results) == {("mallory", _OVER): 50, ("acme", "valid"): 1}


async def test_a_tenant_that_has_used_up_much_time_comes_after_one_that_has_not() -> None:
    bench = Bench()
    await bench.come("mallory", 50)
    await bench.come("acme", 60)
    await bench.check(62)
    assert bench.begun[:62] == ["mallory", *["acme"] * 60, "mallory"]
    await bench.check_all()


async def test_two_hostile_tenants_share_the_thread_by_weight() -> None:
    bench = Bench()
    await bench.come("mallory-1", 40, weight=3)
    await bench.come("mallory-2", 40)
    await bench.check(40)
    assert Counter(bench.begun[:40]) == {"mallory-1": 30, "mallory-2": 10}
    await bench.check_all()


async def test_a_check_cancelled_before_its_turn_is_skipped_and_one_cancelled_in_it_is_waited_for() -> None:
    bench = Bench()
    await bench.come("mallory", 2)
    await bench.come("acme")
    await bench.leave(1)
    await bench.leave(0)
    assert bench.begun == ["mallory"]
    await bench.check_all()
    assert (bench.begun, bench.results) == (["mallory", "acme"], [("acme", "valid")])


async def test_an_answer_whose_time_is_over_while_it_waits_is_not_checked() -> None:
    bench = Bench()
    await bench.come("mallory", 2)
    await bench.come("acme", within_s=0.1)
    await asyncio.sleep(0.2)
    assert bench.results == [("acme", "there was no time to check it")]
    await bench.check_all()
    assert bench.begun == ["mallory"] * 2


async def test_a_check_that_breaks_off_ends_its_turn() -> None:
    bench = Bench()
    await bench.come("mallory")
    await bench.come("acme")
    bench._running[-1].set_exception(MemoryError())
    await _settled()
    with pytest.raises(MemoryError):
        await bench._asked[0]
    await bench.check_all()
    assert bench.results == [("acme", "valid")]


async def test_the_waiting_checks_of_a_tenant_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST_OF_A_TENANT", 3)
    bench = Bench()
    await bench.come("mallory", 5)
    assert bench.results == [("mallory", "3 answers of this tenant wait to be checked, and no more may")]
    await bench.come("acme")
    assert len(bench.results) == 1
    await bench.check_all()
    assert len(bench.begun) == 5


async def test_the_tenant_with_the_most_waiting_for_its_weight_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST_WAITING", 3)
    bench = Bench()
    await bench.come("mallory", 4)
    full = ("mallory", "3 answers wait to be checked, and no more may")
    await bench.come("acme")
    assert bench.results == [full]
    await bench.come("mallory")
    assert bench.results == [full] * 2
    await bench.check_all()
    assert Counter(bench.begun) == {"mallory": 3, "acme": 1}


async def test_a_displaced_waiter_may_just_have_been_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST_WAITING", 2)
    bench = Bench()
    await bench.come("other")
    await bench.come("mallory", 2)
    acme = asyncio.create_task(bench._ask("acme", 1.0, 60.0))
    for task in bench._asked[1:]:
        task.cancel()  # it runs after acme's
    await _settled()
    await bench.check_all()
    assert acme.done()
    assert bench.results == [("other", "valid"), ("acme", "valid")]
