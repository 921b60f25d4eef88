"""The orders that a process of services gets from the process that started it.

An order is a line of JSON on the standard input: its `number`, and in `members` each service's `name`, its `service`,
in `environment` the variables that its own process would have, and in `arguments` its command line. An order to a
worker has its `worker`, a number and the ports that its parent has claimed. Where the standard input is a socket, later
orders replace the first one, and each is answered there by a line with its number once it is in force, or with an
`error`, which changed nothing. Credentials of providers come this way, so no other process of this user sees them.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from services.runtime.process.config import RefusedSettings, read
from services.runtime.process.ports import PortTaken
from services.runtime.process.serve import Service
from services.runtime.process.together import Bring, HostedService
from services.runtime.process.workers import Worker
from services.runtime.refusals import with_environment

_MOST_BYTES = 64 * 2**20
_FD = 0


def first() -> Sequence[HostedService]:
    """The members of the first order. Raises `RefusedSettings`, and ValueError for what is no order."""
    with open(_FD, "rb", closefd=False) as given:
        return _members(json.loads(given.readline(_MOST_BYTES)))


async def follow(bring: Bring) -> None:
    """Answer the first order, which is in force, and carry out those that come. Returns where none can come."""
    try:
        ours = socket.socket(fileno=os.dup(_FD))
    except OSError:  # a file or a terminal
        return
    reader, writer = await asyncio.open_connection(sock=ours, limit=_MOST_BYTES)
    try:
        _answer(writer, 1)
        while line := await reader.readline():
            order = json.loads(line)
            try:
                await bring(_members(order))
            except (RefusedSettings, PortTaken, ValueError) as error:
                _answer(writer, order["number"], str(error))
            else:
                _answer(writer, order["number"])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _answer(writer: asyncio.StreamWriter, number: int, error: str = "") -> None:
    writer.write(json.dumps({"number": number, "error": error}).encode() + b"\n")


def _members(order: dict[str, Any]) -> Sequence[HostedService]:
    members = [_member(given) for given in order["members"]]
    if given := order.get("worker"):
        return [_own(Worker(*given), member) for member in members]
    return members


def _member(given: dict[str, Any]) -> HostedService:
    name, service = given["name"], given["service"]
    module: Any = import_module(f"services.{service}.__main__")
    found: Service = module.SERVICE
    with with_environment(given["environment"]):
        settings = read(found.settings, given.get("arguments", []), prog=name)
    return HostedService(name, found, settings, given)


def _own(worker: Worker, member: HostedService) -> HostedService:
    """The service as a worker serves it."""
    name = f"{member.name}/{worker.number}"
    return replace(member, name=name, settings=worker.own(member.settings), ports_are_claimed=True)
