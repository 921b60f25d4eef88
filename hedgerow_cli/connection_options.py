"""The options by which a command reaches a service: its address, the caller's key, and TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from hedgerow_cli import options, running
from hedgerow_cli.option_groups import with_options

if TYPE_CHECKING:
    from hedgerow import Tls

_RUNNING = "Without it: of the mesh that runs from this folder, or else as below."


def _address(service: str, variable: str, text: str, *flags: str) -> Any:
    """The option for the address of a service."""
    return typer.Option(
        *flags, envvar=variable, metavar="HOST:PORT", help=f"{text} {_RUNNING}", callback=running.address_of(service)
    )


Gateway = Annotated[str, _address("gateway", "HEDGEROW_TARGET", "Address of the gateway.")]
VisionService = Annotated[str, _address("vision", "HEDGEROW_TARGET_VISION", "The vision service.", "--vision")]
AudioService = Annotated[str, _address("audio", "HEDGEROW_TARGET_AUDIO", "The audio service.")]
UseTls = Annotated[
    bool, typer.Option("--tls", envvar="HEDGEROW_TLS", help="Use TLS, with the authorities that the machine trusts.")
]
CaFile = Annotated[
    Path | None,
    typer.Option(envvar="HEDGEROW_TLS_CA", metavar="FILE", help="Use TLS, with the authority in this PEM file."),
]
PlaintextKey = Annotated[
    bool,
    typer.Option(
        "--plaintext-key",
        envvar="HEDGEROW_PLAINTEXT_KEY",
        help="Send the API key to another machine without TLS, where the network can read it.",
    ),
]


class Reach(TypedDict):
    """Address, key and TLS of a client: `Client(**reach)`."""

    target: str
    api_key: str | None
    tls: Tls | None
    allow_plaintext_key: bool


@dataclass(frozen=True)
class CallerCredentials:
    """The caller's key, and TLS."""

    api_key: options.ApiKey = None
    tls: UseTls = False
    ca_file: CaFile = None
    tls_dir: options.TlsDir = None
    plaintext_key: PlaintextKey = False

    def at(self, target: str, service: str) -> Reach:
        """With the address of a service. Raises `BadParameter`."""
        if self.tls_dir and (self.tls or self.ca_file):
            message = "its ca.crt is the authority; leave --tls and --ca-file out"
            raise typer.BadParameter(message, param_hint="--tls-dir")
        return {
            "target": target,
            "api_key": self.api_key,
            "tls": self._tls(service),
            "allow_plaintext_key": self.plaintext_key,
        }

    def _tls(self, service: str) -> Tls | None:
        if not (self.tls or self.ca_file or self.tls_dir):  # plain text, the usual case, loads nothing
            return None
        from hedgerow import HedgerowError, Tls

        tls = Tls.from_folder(self.tls_dir, service) if self.tls_dir else Tls(self.ca_file)
        try:
            tls.pem()
        except HedgerowError as error:
            raise typer.BadParameter(error.message) from None
        return tls


@with_options(credentials=CallerCredentials)
def to_gateway(gateway: Gateway = "127.0.0.1:50050", *, credentials: CallerCredentials) -> Reach:
    """The group of options to reach a gateway."""
    return credentials.at(gateway, "gateway")


@with_options(credentials=CallerCredentials)
def to_vision(vision: VisionService = "127.0.0.1:50055", *, credentials: CallerCredentials) -> Reach:
    """The group of options to reach a vision service."""
    return credentials.at(vision, "vision")


@with_options(credentials=CallerCredentials)
def to_audio(audio_service: AudioService = "127.0.0.1:50056", *, credentials: CallerCredentials) -> Reach:
    """The group of options to reach an audio service."""
    return credentials.at(audio_service, "audio")
