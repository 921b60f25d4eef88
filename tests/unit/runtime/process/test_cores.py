"""The number of cores that a process may use, from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.process.cores import usable_cores

_NODE = frozenset(range(64))


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of 64 cores."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: _NODE)


def _cores(folder: Path, membership: str, files: dict[str, str]) -> int:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "membership").write_text(membership)
    return usable_cores(folder, folder / "membership")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 64), ("", 64)],
)
def test_a_containers_cpu_limit_bounds_the_cores(tmp_path: Path, limit: str, expected: int) -> None:
    assert _cores(tmp_path, "0::/\n", {"cpu.max": limit}) == expected


def test_the_smallest_limit_of_all_cgroups_above_counts(tmp_path: Path) -> None:
    files = {
        "pods.slice/cpu.max": "1600000 100000\n",
        "pods.slice/pod.slice/cpu.max": "300000 100000\n",
        "pods.slice/pod.slice/one/cpu.max": "max 100000\n",
    }
    assert _cores(tmp_path, "0::/pods.slice/pod.slice/one\n", files) == 3


def test_a_path_of_the_host_that_the_container_does_not_see_leaves_the_mount(tmp_path: Path) -> None:
    assert _cores(tmp_path, "0::/kubepods/pod7/abc\n", {"cpu.max": "400000 100000\n"}) == 4


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "expected"), [("250000", 3), ("-1", 64)])
def test_cgroup_v1_has_its_limit_in_two_files(tmp_path: Path, folder: str, quota: str, expected: int) -> None:
    files = {f"{folder}/pod/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/pod/cpu.cfs_period_us": "100000\n"}
    assert _cores(tmp_path, "4:memory:/other\n1:cpu,cpuacct:/pod\n0::/\n", files) == expected


def test_a_limit_above_the_affinity_adds_no_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert _cores(tmp_path, "0::/\n", {"cpu.max": "800000 100000\n"}) == 2


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "none") == 64
