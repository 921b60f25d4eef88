"""Services of a compose file by `docker run`, on the network of this machine: for an engine without the compose plugin
or without bridge networks.

Each service gets a loopback address of its own, under which the others know it (`--add-host`). All else is as the file
says, but for three things: nothing is started again when it ends, services that are not built from this tree (Jaeger)
are left out with what leads to them, and the interval of the start is that of always, because engines before 25 know no
other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.containers.docker import docker, inspect

PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"  # the labels that compose gives
Fields = Mapping[str, Any]
_OURS, _JAEGER = "hedgerow/", "http://jaeger:4317"
_ANYWHERE = "0.0.0.0:"


def _each(option: str) -> Callable[[Any], list[str]]:
    return lambda values: [word for value in values for word in (option, str(value))]


def _one(option: str) -> Callable[[Any], list[str]]:
    return lambda value: [option, str(value)]


def _flag(option: str) -> Callable[[Any], list[str]]:
    return lambda value: [option] if value else []


# How `docker run` says it. A key of neither of these fails, so that nothing is left out unseen.
_OPTIONS: Mapping[str, Callable[[Any], list[str]]] = {
    "init": _flag("--init"),
    "read_only": _flag("--read-only"),
    "tmpfs": _each("--tmpfs"),
    "cap_drop": _each("--cap-drop"),
    "security_opt": _each("--security-opt"),
    "mem_limit": _one("--memory"),
    "shm_size": _one("--shm-size"),
}
_SAID_OTHERWISE = {"image", "environment", "volumes", "healthcheck", "depends_on", "command"}
_LEFT_OUT = {"build", "ports", "restart", "stop_grace_period"}


@dataclass(frozen=True)
class Plan:
    """What is started of a file: `services` by name, those that are waited for first; each has a host of its own."""

    project: str
    folder: Path  # where relative paths begin
    services: Mapping[str, Fields]
    hosts: Mapping[str, str]

    def settings(self, name: str) -> dict[str, str]:
        """The service's environment, of its image and of the file. It listens on its own address."""
        image = dict(each.split("=", 1) for each in inspect("image", self.services[name]["image"])["Config"]["Env"])
        file = {variable: str(text) for variable, text in self.services[name].get("environment", {}).items()}
        return {
            variable: text.replace("$$", "$").replace(_ANYWHERE, f"{self.hosts[name]}:", 1)
            for variable, text in {**image, **file}.items()
            if text != _JAEGER
        }

    def run(self, name: str, *, checked: bool = True) -> None:
        """Start a container. Without `checked` the engine does not ask it how it is."""
        fields = self.services[name]
        words = ["--name", f"{self.project}-{name}", "--network", "host"]
        words += ["--label", f"{PROJECT}={self.project}", "--label", f"{SERVICE}={name}"]
        words += _each("--add-host")(f"{other}:{host}" for other, host in self.hosts.items())
        words += _each("--env")(f"{variable}={text}" for variable, text in self.settings(name).items())
        words += self._health(name) if checked and not self.ends(name) else ["--no-healthcheck"]
        words += [word for volume in fields.get("volumes", ()) for word in ("--volume", self._mount(volume))]
        for key in sorted(fields.keys() - _SAID_OTHERWISE - _LEFT_OUT):
            words += _OPTIONS[key](fields[key])
        docker("run", "--detach", *words, fields["image"], *fields.get("command", ()))

    def ends(self, name: str) -> bool:
        """Whether the service ends when its work is done: others wait until it has."""
        done = {"condition": "service_completed_successfully"}
        return any(each.get("depends_on", {}).get(name) == done for each in self.services.values())

    def _health(self, name: str) -> list[str]:
        """The image's own check, asked at the service's own address."""
        _, *test = inspect("image", self.services[name]["image"])["Config"]["Healthcheck"]["Test"]
        command = " ".join(test).replace("127.0.0.1:", f"{self.hosts[name]}:")
        check = self.services[name]["healthcheck"]
        often = ["--health-interval", check["start_interval"], "--health-start-period", check["start_period"]]
        return ["--health-cmd", command, *often]

    def _mount(self, volume: str | Fields) -> str:
        if not isinstance(volume, str):
            assert volume["type"] == "bind"
            assert volume["read_only"]
            return f"{volume['source']}:{volume['target']}:ro"
        source, _, inside = volume.partition(":")
        if source.startswith("."):
            return f"{(self.folder / source).resolve()}:{inside}"
        docker("volume", "create", "--label", f"{PROJECT}={self.project}", f"{self.project}-{source}")
        return f"{self.project}-{source}:{inside}"


def plan(file: Path, project: str, more: Mapping[str, Fields] | None = None) -> Plan:
    """The compose file's services that are built from this tree, and `more` of the same kind."""
    read: dict[str, Fields] = {**yaml.safe_load(file.read_text())["services"], **(more or {})}
    ours = {name: fields for name, fields in read.items() if fields["image"].startswith(_OURS)}
    order: Sequence[str] = sorted(ours, key=lambda name: len(ours[name].get("depends_on", ())))
    hosts = {name: f"127.9.{os.getpid() % 256}.{number}" for number, name in enumerate(order, 1)}
    return Plan(project, file.parent, {name: ours[name] for name in order}, hosts)
