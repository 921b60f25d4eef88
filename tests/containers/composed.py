"""Containers of a compose file: by `docker compose` where that can be, else on the network of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.containers.docker import Failed, docker, has_compose, has_networks, inspect
from tests.containers.on_this_network import PROJECT, SERVICE, plan

_START_S, _GRACE_S, _POLL_S = 600, 10, 0.2


class Composed:
    """Started containers. `grpc` and `http` are where the gateway serves."""

    def __init__(self, project: str, grpc: str = "", http: str = ""):
        self.project, self.grpc, self.http = project, grpc, http

    def states(self) -> dict[str, dict[str, Any]]:
        """The engine's state of each service's container, also of those that have ended."""
        listed = docker("ps", "-a", *_of(self.project), "--format", f'{{{{.Label "{SERVICE}"}}}} {{{{.ID}}}}')
        return {name: inspect("container", each) for name, each in map(str.split, listed.splitlines())}

    def wait_healthy(self, services: Iterable[str]) -> None:
        """Return when all are, or have ended well where they have no check. Raises `Failed` with the log of one that
        failed, or was not in time."""
        end, waiting = time.monotonic() + _START_S, set(services)
        while waiting:
            states = {name: found["State"] for name, found in self.states().items() if name in waiting}
            for name, state in states.items():
                health = state.get("Health", {}).get("Status", "no check")
                done = health == "no check" and state["Status"] == "exited" and state["ExitCode"] == 0
                if done or health == "healthy":
                    waiting.remove(name)
                elif state["Status"] == "exited" or time.monotonic() > end:
                    log = docker("logs", "--tail", "60", self.states()[name]["Id"])
                    raise Failed(f"{name}: {state['Status']}, {health}:\n{log}")
            time.sleep(_POLL_S)

    def stop(self) -> dict[str, int]:
        """Stop all services, the gateway first, and return their exit statuses."""
        for _, found in sorted(self.states().items(), key=lambda each: each[0] != "gateway"):
            docker("stop", "--time", str(_GRACE_S), found["Id"], timeout_s=_GRACE_S + 30)
        ended = {name: found["State"] for name, found in self.states().items()}
        assert not any(state["OOMKilled"] for state in ended.values()), ended
        return {name: state["ExitCode"] for name, state in ended.items()}


@contextmanager
def composed(file: Path, project: str) -> Iterator[Composed]:
    """The file's services, healthy; gone with their volumes afterwards, whatever happens. Two runs on one engine at
    once are in each other's way, so that the next one finds what a killed one left."""
    remove(project)
    try:
        yield _by_compose(file, project) if has_compose() and has_networks() else _on_this_network(file, project)
    finally:
        remove(project)


def remove(project: str) -> None:
    """Remove the containers, volumes and networks of a project."""
    if containers := docker("ps", "-aq", *_of(project)).split():
        docker("rm", "--force", "--volumes", *containers)
    for kind in ("volume", "network"):
        if found := docker(kind, "ls", "-q", *_of(project)).split():
            docker(kind, "rm", *found)


def _of(project: str) -> list[str]:
    return ["--filter", f"label={PROJECT}={project}"]


def _by_compose(file: Path, project: str) -> Composed:
    # The gateway, and all that it depends on: Jaeger's image would come from a registry.
    docker("compose", "-p", project, "-f", str(file), "up", "--detach", "--wait", "gateway", timeout_s=_START_S)
    ports = yaml.safe_load(file.read_text())["services"]["gateway"]["ports"]
    return Composed(project, *(port.rpartition(":")[0] for port in ports))


def _on_this_network(file: Path, project: str) -> Composed:
    planned, started = plan(file, project), Composed(project)
    for name, fields in planned.services.items():
        started.wait_healthy(fields.get("depends_on", ()))
        planned.run(name)
    started.wait_healthy(planned.services)
    settings = planned.settings("gateway")
    started.grpc, started.http = settings["HEDGEROW_GATEWAY_ADDRESS"], settings["HEDGEROW_GATEWAY_HTTP_ADDRESS"]
    return started
