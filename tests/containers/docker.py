"""The command `docker`, and whether there is an engine behind it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from scripts import version

REPOSITORY = Path(__file__).parents[2]
DOCKERFILES = REPOSITORY / "deploy/docker"
BASE = "python:3.11-slim-bookworm"
VERSION = version.current()
# That for GPUs starts from an image of 10 GB and serves on no other machine.
IMAGES = sorted(file.stem for file in DOCKERFILES.glob("*.Dockerfile") if "cuda" not in file.stem)
_BUILD_S = 1800


class Failed(AssertionError):
    """A command of Docker's failed; with the end of what it said."""


def docker(*arguments: str, timeout_s: float = 60) -> str:
    """Run the command and return its output. Raises `Failed`."""
    done = subprocess.run(
        ["docker", *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise Failed(f"docker {arguments[0]}: {(done.stderr or done.stdout)[-3000:]}")
    return (done.stdout + done.stderr if arguments[0] == "logs" else done.stdout).strip()


def works(*arguments: str) -> bool:
    """Whether the command does, and prints something."""
    try:
        return bool(docker(*arguments, timeout_s=10))
    except (Failed, OSError, subprocess.TimeoutExpired):
        return False


def unreachable() -> str:
    """Why there is no engine; empty where there is one."""
    if not shutil.which("docker"):
        return "there is no command `docker`"
    try:
        docker("version", "--format", "{{.Server.Version}}", timeout_s=10)
    except Failed as error:
        return str(error).strip().splitlines()[-1]
    except subprocess.TimeoutExpired:
        return "the Docker engine does not answer"
    return ""


def has_networks() -> bool:
    """Whether containers can have a network of their own. An engine without iptables may not; then they share ours."""
    return works("network", "ls", "--quiet", "--filter", "driver=bridge")


def has_compose() -> bool:
    return works("compose", "version")


def build(image: str) -> str:
    """Build the image and return its name. Unchanged layers come from the engine's cache."""
    name = f"hedgerow/{image}:{VERSION}"
    file = DOCKERFILES / f"{image}.Dockerfile"
    shared = [] if has_networks() else ["--network", "host"]
    asked = ["--build-arg", "TORCH_INDEX"] if "ARG TORCH_INDEX" in file.read_text() else []
    command = ["build", "--force-rm", *shared, *asked, "--file", str(file), "--tag", name, "."]
    docker(*command, timeout_s=_BUILD_S)
    return name


def inspect(kind: str, name: str) -> dict[str, Any]:
    """The engine's record of an `image` or a `container`."""
    (found,) = json.loads(docker(kind, "inspect", name))
    return dict(found)


def size_mb(image: str) -> int:
    """The image's size on disk, its base included, in MB."""
    return round(int(inspect("image", image)["Size"]) / 1e6)
