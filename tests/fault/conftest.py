"""The shared mesh, the report, and the check that no test leaves anything behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tests.fault.apart import MEASURED
from tests.fault.bare_calls import bare_calls
from tests.fault.faulty_llm import FaultyLlm, faulty_llm
from tests.fault.load import answer_well
from tests.fault.mesh import Mesh, Processes, processes, shared_mesh
from tests.fault.replicated import Replicated, replicated
from tests.fault.report import Report
from tests.waiting import until

_REPORT = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-report", action="store_true", help="write docs/faults.md, with every fault at full size")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORT] = Report()
    if config.getoption("--faults-report", default=False):
        os.environ[MEASURED] = "1"  # before the first process is forked


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--faults-report", default=False):
        report = session.config.stash[_REPORT]
        if report.missing():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            report.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    missing = config.stash[_REPORT].missing()
    if config.getoption("--faults-report", default=False) and missing:
        terminalreporter.write_line(f"docs/faults.md is not written: nothing was measured for {missing}", red=True)


@pytest.fixture(scope="session")
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether to take the time for the numbers of calls that FAULTS asks for."""
    return bool(request.config.getoption("--faults-report", default=False))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def report(request: pytest.FixtureRequest, full_size: bool) -> AsyncIterator[Report]:
    """Where tests put their figures."""
    report = request.config.stash[_REPORT]
    if not full_size:
        yield report
        return
    async with bare_calls() as report.bare:
        yield report


@pytest.fixture(scope="session", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """After everything else has ended, no process that a test has started is left."""
    ensure_running()  # the process that services are forked from stays
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started_mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with shared_mesh(tmp_path_factory.mktemp("mesh")) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="session")
async def mesh(started_mesh: Mesh) -> AsyncIterator[Mesh]:
    """The shared mesh, healthy before the test, and again after it."""
    await _well(started_mesh)
    yield started_mesh
    started_mesh.heal()
    await until(lambda: not started_mesh.llm.running, 10)  # the calls of a test end with it


async def _well(mesh: Mesh) -> None:
    mesh.heal()
    for _ in range(2):  # a breaker's probe, then a call like any other
        await mesh.caller.until(lambda outcome: outcome.ok, within_s=15)
    mesh.llm.reset()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started_replicas(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replicated]:
    async with replicated(tmp_path_factory.mktemp("replicated"), proxied=("gateway", "llm")) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="session")
async def replicas(started_replicas: Replicated) -> AsyncIterator[Replicated]:
    """The shared mesh with two of each service, healthy before the test and again after it."""
    await answer_well(started_replicas.caller)
    yield started_replicas
    await started_replicas.heal()


@pytest_asyncio.fixture(loop_scope="session")
async def starter(tmp_path: Path) -> AsyncIterator[Processes]:
    """Starts processes for one test."""
    async with processes(tmp_path) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def llm() -> AsyncIterator[FaultyLlm]:
    """A backend of the test's own that breaks on command."""
    async with faulty_llm() as running:
        yield running
