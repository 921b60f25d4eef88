"""The addresses that a process and its children connect to: every one that any thread of any library gives to `connect`
or `sendto`. strace(1) records them; there is no fallback, which would miss some.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from launcher.processes import ServiceSpec

_ADDRESS = re.compile(
    r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"[^)]*\))', re.DOTALL
)
# Not `sendmsg`: gRPC writes everything with it, and what it writes to was connected before. `-D`: the process keeps the
# pid, the parent and the signals that it would have without.
_OPTIONS = ("-D", "-f", "--seccomp-bpf", "-qqq", "-e", "trace=connect,sendto,sendmmsg", "-e", "signal=none")


def watched(spec: ServiceSpec, record: Path) -> ServiceSpec:
    """The same process, whose calls are written to `record` as they are made."""
    command = spec.command or (sys.executable, "-m", spec.module)
    return dataclasses.replace(spec, command=(strace(), *_OPTIONS, "-o", str(record), "--", *command))


def strangers(record: Path) -> set[str]:
    """Every address beyond loopback that was called or sent to, as host:port."""
    found = {(v4 or v6, port) for port, v4, v6 in _ADDRESS.findall(record.read_text(errors="replace"))}
    return {f"{host}:{port}" for host, port in found if not _is_loopback(host)}


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@cache
def strace() -> str:
    """Where it is. Debian's package is unpacked beside the tests' other temporary files where it is not installed."""
    if installed := shutil.which("strace"):
        return installed
    folder = Path(tempfile.mkdtemp(prefix="strace-"))
    subprocess.run(["apt-get", "download", "strace"], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("strace_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, capture_output=True)
    return str(folder / "usr" / "bin" / "strace")
