"""What services say, which goes on for as long as they run."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

from launcher.processes import ServiceProcess, ServiceSpec


def process(folder: Path, *command: str) -> ServiceProcess:
    return ServiceProcess(ServiceSpec("one", "", "127.0.0.1:1", command=command), folder)


async def test_the_end_of_a_long_log_is_read_without_the_rest(tmp_path: Path) -> None:
    one = process(tmp_path, "true")
    await one.wait()
    os.truncate(one.log, 16 * 2**20)
    with one.log.open("ab") as log:
        log.write(b"\n" + b"".join(b"line %d\n" % number for number in range(20)))
    tracemalloc.start()
    try:
        said = one.tail(2)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert said == "line 18\nline 19"
    assert most_bytes < 2**20
