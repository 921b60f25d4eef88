"""How services reach each other. For now in plain text; see `Dial`."""

from __future__ import annotations

from typing import Protocol

import grpc

from hedgerow.channel import open_channel


class Dial(Protocol):
    """Opens a channel to `target` (`host:port` or `xds:///name`), whose processes are those of `service`."""

    def __call__(self, target: str, service: str) -> grpc.aio.Channel: ...


def plain(target: str, service: str) -> grpc.aio.Channel:
    """`Dial` in plain text."""
    return open_channel(target)
