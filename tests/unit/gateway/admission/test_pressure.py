from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client import REGISTRY

from services.gateway.admission.control import Pressure
from tests.clock import PausedClock


class Machine:
    """A loop that sleeps as late as the test says, and a CPU that is as busy."""

    def __init__(self, *nights: tuple[float, float]):
        """For each sleep: how late it ends, in seconds, and the cores used meanwhile."""
        self.clock, self.cpu = PausedClock(), PausedClock()
        self.nights = iter(nights)

    async def sleep(self, seconds: float) -> None:
        night = next(self.nights, None)
        if night is None:
            raise asyncio.CancelledError
        late_s, cores = night
        self.clock.advance(seconds + late_s)
        self.cpu.advance((seconds + late_s) * cores)


async def pressure_after(*nights: tuple[float, float]) -> Pressure:
    machine = Machine(*nights)
    pressure = Pressure(0.05, 0.95, machine.clock, machine.cpu, machine.sleep)
    with pytest.raises(asyncio.CancelledError):
        await pressure.run()
    return pressure


async def test_a_loop_that_stays_late_on_a_busy_cpu_is_pressure():
    pressure = await pressure_after(*[(0.05, 1.0)] * 30)
    assert pressure.value() == pytest.approx(1, rel=0.01)
    assert REGISTRY.get_sample_value("hedgerow_loop_lag_seconds") == pytest.approx(0.05, rel=0.01)
    assert REGISTRY.get_sample_value("hedgerow_cpu_cores") == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    "nights",
    [[(0.5, 0.9)] * 30, [(0.0, 1.9)] * 30, [*[(0.0, 0.5)] * 10, (0.1, 1.0)]],
    ids=["lateness with CPU to spare", "a busy CPU without lateness", "one slow callback"],
)
async def test_there_is_no_pressure_by(nights: list[tuple[float, float]]):
    assert (await pressure_after(*nights)).value() == pytest.approx(0)


async def test_a_loop_that_stays_late_with_a_fifth_of_a_core_is_late_by_the_work_of_others():
    pressure = await pressure_after(*[(0.2, 0.2)] * 30)
    assert (pressure.value(), pressure.lag()) == (0, pytest.approx(1, rel=0.01))


async def test_lateness_of_a_process_that_does_next_to_nothing_counts_for_nothing():
    assert (await pressure_after(*[(0.5, 0.05)] * 30)).lag() == 0


async def test_pressure_falls_soon_after_the_work_is_done():
    pressure = await pressure_after(*[(0.1, 1.0)] * 30, *[(0.0, 1.0)] * 10)
    assert pressure.value() < 0.1


async def test_a_real_loop_that_is_kept_busy_is_late_and_busy():
    pressure = Pressure(0.001, 0.05)
    watching = asyncio.create_task(pressure.run())
    while not pressure.value():  # every callback holds the loop for longer than the limit
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
