"""The real Envoy, configured by the real control plane, in front of scripted gateways."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hedgerow import Tls
from hedgerow.gateway.v1 import gateway_pb2_grpc
from launcher import envoy
from launcher.processes import ServiceSpec, free_ports
from tests.forked import ServiceProcess
from tests.integration.scripted_gateway import ScriptedGateway
from tests.waiting import until

Endpoint = str | dict[str, Any]  # an address, or as the topology has it


@dataclass(frozen=True)
class Edge:
    """A way in; addresses are host:port."""

    folder: Path
    address: str
    admin: str
    process: ServiceProcess

    async def logged(self, timeout_s: float = 20, **fields: Any) -> dict[str, Any]:
        """The access log's last line with these fields, once it is there."""
        found = await until(lambda: [line for line in self._lines() if fields.items() <= line.items()], timeout_s)
        return found[-1]

    def _lines(self) -> list[dict[str, Any]]:
        lines = self.process.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


@asynccontextmanager
async def edge_before(
    folder: Path,
    gateways: Sequence[Endpoint],
    settings: dict[str, Any],
    *,
    control_tls_dir: Path | None = None,
    **bootstrap: Any,
) -> AsyncIterator[Edge]:
    """`settings` are the topology's `edge`, less its address; `bootstrap` what `write_bootstrap` takes. With
    `control_tls_dir` the control plane asks for certificates, and says that gateways do."""
    port, admin, control = (f"127.0.0.1:{number}" for number in free_ports(3))
    mtls = control_tls_dir is not None
    topology = _write_topology(folder, gateways, {"address": port, **settings}, mtls)
    own = {"ADDRESS": control, "TOPOLOGY": str(topology)}
    own |= {"TLS_DIR": str(control_tls_dir)} if mtls else {}
    environment = {f"HEDGEROW_CONTROL_{name}": value for name, value in own.items()}
    file = envoy.write_bootstrap(
        folder / "envoy", node_id="edge-test", region="", control_address=control, admin_address=admin, **bootstrap
    )
    async with AsyncExitStack() as stack:
        asked_by = Tls.from_folder(control_tls_dir.parent / "operator", "control") if control_tls_dir else None
        told_by = ServiceSpec("control", "services.control", control, environment, tls=asked_by)
        plane = ServiceProcess(told_by, folder / "logs")
        stack.push_async_callback(plane.stop)
        await plane.wait_serving()  # an Envoy that is refused once waits up to some seconds
        spec = ServiceSpec("envoy", "", port, command=tuple(envoy.command(file)), folder=file.parent)
        process = ServiceProcess(spec, folder / "logs")
        stack.push_async_callback(process.stop)
        await envoy.wait_ready(admin)
        yield Edge(folder, port, admin, process)


def _write_topology(folder: Path, gateways: Sequence[Endpoint], edge: dict[str, Any], mtls: bool) -> Path:
    endpoints = [{"address": each} if isinstance(each, str) else each for each in gateways]
    services = {"gateway": {"endpoints": endpoints}}
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump({"services": services, "edge": edge, "mtls": mtls}))
    return file


class Gateway(ScriptedGateway):
    """A scripted gateway that keeps the certificate of its caller."""

    peer = ""  # the SPIFFE URI of the last call's certificate

    def _meet(self, context: Any) -> None:
        super()._meet(context)
        self.peer = b"".join(context.auth_context().get("peer_spiffe_id", ())).decode()


@asynccontextmanager
async def gateway(credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[Gateway]:
    """A scripted gateway that says it is healthy; with `credentials`, over TLS."""
    pings = ("grpc.http2.max_ping_strikes", 0)  # as the real one, it lets callers find out whether it is there
    scripted, checks, server = Gateway(), health.aio.HealthServicer(), grpc.aio.server(options=[pings])
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(scripted, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    at = "127.0.0.1:0"
    port = server.add_secure_port(at, credentials) if credentials else server.add_insecure_port(at)
    scripted.target = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(0)


@dataclass(frozen=True)
class Issuer:
    """Signs JSON Web Tokens (RS256), as an identity provider does."""

    name: str = "https://issuer.example"
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def jwks(self) -> str:
        """The issuer's public key, as a JSON Web Key Set."""
        public = self.key.public_key().public_numbers()
        numbers = {"n": _unpadded(_bytes(public.n)), "e": _unpadded(_bytes(public.e))}
        return json.dumps({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", **numbers}]})

    def written(self, folder: Path) -> dict[str, Any]:
        """The topology's `jwt` for it; its keys are in `folder/jwks.json`."""
        (folder / "jwks.json").write_text(self.jwks())
        return {"issuer": self.name, "audiences": ["hedgerow"], "jwks_file": str(folder / "jwks.json")}

    def token(self, **claims: Any) -> str:
        """Good for an hour; a claim of None is left out."""
        defaults = {"iss": self.name, "aud": "hedgerow", "sub": "somebody", "exp": int(time.time()) + 3_600}
        said = {name: value for name, value in {**defaults, **claims}.items() if value is not None}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "1"}, said)
        signed = ".".join(_unpadded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_unpadded(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
