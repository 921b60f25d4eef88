"""The Helm chart's pods as processes of this machine: what it gives their containers makes a mesh that answers.

Each Deployment is one process, with the container's own variables, arguments and files. Names of Services become ports
of loopback, and mounts become folders; nothing else is changed. Probes are asked as a kubelet asks them: without a
certificate of the mesh, and of Envoy without looking at its certificate.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import redis.asyncio
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

import hedgerow
from hedgerow import Tls
from launcher import envoy
from launcher.processes import ServiceSpec, free_ports
from launcher.replicas import redis_binary
from tests.certificates import Certificates
from tests.contract.chart import Answer, Manifest, ask, container, environment, identity, needs_helm, pod, ports
from tests.forked import ServiceProcess
from tests.integration.careless_provider import CarelessProvider, careless_provider
from tests.waiting import until

KEY = "caller-key"
SECRETS = {  # by their entries
    "OPENAI_API_KEY": "sk-provider",
    "key": "A" * 43 + "=",
    "password": "a-password",
    "url": "redis://:a-password@redis.hedgerow:6379/0",
}
WAIT_S = 60
pytestmark = needs_helm


def values(provider: CarelessProvider) -> dict[str, Any]:
    """One model of a provider's, and a tenant with a key."""
    return {
        "models": [
            {
                "name": "m",
                "service": "m",
                "source": "provider",
                "router": {"tier": "fast"},
                "settings": {"ENGINE": "openai", "OPENAI": {"base_url": provider.url, "model": "careless"}},
                "secrets": {"OPENAI__API_KEY": {"name": "hedgerow-keys", "key": "OPENAI_API_KEY"}},
            }
        ],
        "redis": {"mode": "none"},
        "tenants": {"inline": {"acme": {"keys": [hashlib.sha256(KEY.encode()).hexdigest()]}}},
        "shutdown": {"graceSeconds": 2, "lameDuckSeconds": 0},
    }


class Node:
    """This machine, as the cluster's only node."""

    def __init__(self, answer: Answer, certificates: Certificates, folder: Path):
        self.answer, self.certificates, self.folder = answer, certificates, folder
        self.processes: dict[str, ServiceProcess] = {}
        listening = [(name, each) for name, workload in answer.workloads.items() for each in ports(workload)]
        *found, self.admin = free_ports(len(listening) + 1)
        self.ports = dict(zip(listening, found, strict=True))

    def start(self, name: str) -> ServiceProcess:
        workload = self.answer.workloads[name]
        address = f"127.0.0.1:{self.ports[name, name if name in ('edge', 'redis') else 'grpc']}"
        mounts = {path: self._mount(name, path, volume) for path, volume in _volumes(workload).items()}
        if name == "edge":
            arguments = [self._here(each, workload, mounts) for each in container(workload)["args"]]
            command = (envoy.binary(), *(each.replace("$(POD_NAME)", name) for each in arguments))
            spec = ServiceSpec(name, "", address, command=command, folder=Path(mounts["/etc/envoy"]))
        elif name == "redis":
            line = " ".join(container(workload)["args"]).replace("$(REDIS_PASSWORD)", SECRETS["password"])
            line = line.replace("--port 6379", f"--port {self.ports[name, name]}").replace("/data", mounts["/data"])
            spec = ServiceSpec(name, "", address, command=(redis_binary(), *line.split()), speaks="redis")
        else:
            variables = {key: self._here(text, workload, mounts) for key, text in self._variables(workload).items()}
            service = identity(workload)
            variables[f"HEDGEROW_{service.upper()}_ADDRESS"] = address  # the image's
            spec = ServiceSpec(name, f"services.{service}", address, variables)
        self.processes[name] = ServiceProcess(spec, self.folder / "logs")
        return self.processes[name]

    def _variables(self, workload: Manifest) -> dict[str, str]:
        """The container's variables, with what Secrets hold."""
        variables = environment(workload, "")
        for variable in container(workload)["env"]:
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                variables[variable["name"]] = SECRETS[reference["key"]]
        return variables

    async def passes(self, name: str, probe: str) -> bool:
        """Whether the container's probe passes, asked as a kubelet does."""
        given = container(self.answer.workloads[name])[probe]
        if "grpc" in given:
            (port,) = [new for (owner, each), new in self.ports.items() if (owner, each) == (name, "grpc")]
            assert given["grpc"]["port"] == ports(self.answer.workloads[name])["grpc"]
            return await _serving(f"127.0.0.1:{port}")
        if "tcpSocket" in given:
            with suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.ports[name, given["tcpSocket"]["port"]])
                writer.close()
                return True
            return False
        if "exec" in given:
            workload = self.answer.workloads[name]
            command = [each.replace("6379", str(self.ports[name, name])) for each in given["exec"]["command"]]
            beside = {"PATH": f"{Path(redis_binary()).parent}:{os.environ['PATH']}", **self._variables(workload)}
            asking = await asyncio.create_subprocess_exec(*command, env=beside)
            return await asyncio.wait_for(asking.wait(), WAIT_S) == 0
        page = given["httpGet"]
        scheme, port = page.get("scheme", "HTTP").lower(), self.ports[name, page["port"]]
        async with httpx.AsyncClient(verify=False, timeout=20) as kubelet:
            try:
                return (await kubelet.get(f"{scheme}://127.0.0.1:{port}{page['path']}")).is_success
            except httpx.TransportError:
                return False

    def _mount(self, name: str, path: str, volume: Mapping[str, Any]) -> str:
        """A folder with the volume's content."""
        if path in ("/tls", "/edge-tls"):
            return str(self.certificates.folder / identity(self.answer.workloads[name]))
        folder = self.folder / name / path.strip("/").replace("/", "-")
        folder.mkdir(parents=True)
        content: Mapping[str, str] = {}
        if "configMap" in volume:
            content = self.answer.kind("ConfigMap")[volume["configMap"]["name"]]["data"]
        if volume.get("secret", {}).get("secretName") == "tenants-inline":
            content = self.answer.kind("Secret")["tenants-inline"]["stringData"]
        for file, text in content.items():
            (folder / file).write_text(self._rewritten(file, text))
        return str(folder)

    def _rewritten(self, file: str, text: str) -> str:
        if file == "topology.yaml":
            topology = yaml.safe_load(text)
            for name, service in topology["services"].items():
                for endpoint in service["endpoints"]:
                    endpoint["address"] = self._addresses(endpoint["address"])
                    if "http_port" in endpoint:
                        endpoint["http_port"] = self.ports[name, "http"]
            if "edge" in topology:
                topology["edge"]["address"] = f"127.0.0.1:{self.ports['edge', 'edge']}"
            return yaml.safe_dump(topology)
        if file == "envoy.yaml":
            bootstrap = yaml.safe_load(text)
            bootstrap["admin"]["address"]["socket_address"]["port_value"] = self.admin
            (control,) = bootstrap["static_resources"]["clusters"]
            (endpoint,) = control["load_assignment"]["endpoints"][0]["lb_endpoints"]
            place = endpoint["endpoint"]["address"]["socket_address"]
            place |= {"address": "127.0.0.1", "port_value": self.ports[place["address"], "grpc"]}
            return yaml.safe_dump(bootstrap)
        certificates = self.certificates.folder / "edge"
        return (
            text.replace("/edge-tls", str(certificates))
            .replace("/tls/", f"{certificates}/")
            .replace("path: /tls", f"path: {certificates}")
        )

    def _here(self, text: str, workload: Manifest, mounts: Mapping[str, str]) -> str:
        name = workload["metadata"]["name"]
        paths = "|".join(["/etc/hedgerow", "/etc/envoy", "/var/lib/hedgerow", "/tls"])  # as /tmp is here, too
        text = re.sub(rf"(?<![\w/-])({paths})(?![\w-])", lambda found: mounts[found[0]], text)
        for port, number in ports(workload).items():
            text = text.replace(f"0.0.0.0:{number}", f"127.0.0.1:{self.ports[name, port]}")
        return self._addresses(text)

    def _addresses(self, text: str) -> str:
        """`cache:50051` and `control.hedgerow:50060` as the ports that they have here."""
        for name, workload in self.answer.ours.items():
            number = ports(workload)["grpc"]
            text = re.sub(rf"\b{name}(\.hedgerow)?:{number}\b", f"127.0.0.1:{self.ports[name, 'grpc']}", text)
        return text.replace("redis.hedgerow:6379", f"127.0.0.1:{self.ports.get(('redis', 'redis'), 0)}")


def _volumes(workload: Manifest) -> dict[str, Mapping[str, Any]]:
    """By where they are mounted."""
    volumes = {each["name"]: each for each in pod(workload).get("volumes", ())}
    return {each["mountPath"]: volumes.get(each["name"], {}) for each in container(workload)["volumeMounts"]}


async def _serving(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        try:
            health: Any = health_pb2_grpc.HealthStub(channel)
            reply = await health.Check(health_pb2.HealthCheckRequest(), timeout=20)
        except grpc.aio.AioRpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def running(more: Mapping[str, Any], folder: Path) -> AsyncIterator[tuple[Node, CarelessProvider]]:
    """The chart's pods, all of them ready."""
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(careless_provider())
        (answer,) = ask([{**values(provider), **more}])
        assert not answer.error, answer.error
        node = Node(answer, Certificates(folder / "certs"), folder)
        for name in answer.workloads:
            stack.push_async_callback(node.start(name).stop)
        for name in answer.workloads:
            await until(lambda name=name: _ready(node, name), WAIT_S, every_s=0.1)
        yield node, provider


async def _ready(node: Node, name: str) -> bool:
    process = node.processes[name]
    assert process.exit_code is None, process.tail(40)
    return all([await node.passes(name, probe) for probe in ("startupProbe", "readinessProbe")])


async def asked(http: httpx.AsyncClient, key: str = KEY) -> httpx.Response:
    messages = [{"role": "user", "content": "What is two and three?"}]
    body = {"model": "m", "messages": messages, "hedgerow": {"cache": "use"}}
    return await http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})


async def answered(http: httpx.AsyncClient) -> str:
    """The answer's text, as soon as what is asked takes calls."""
    response = await until(lambda: asked(http), WAIT_S, holds=lambda seen: seen.status_code != 503, every_s=0.2)
    assert response.is_success, response.text
    return str(response.json()["choices"][0]["message"]["content"])


async def test_pods_with_certificates_answer_through_envoy_by_http_and_grpc(tmp_path: Path) -> None:
    async with running({}, tmp_path) as (node, provider):
        for name in node.answer.workloads:
            assert await node.passes(name, "livenessProbe")
        trusted = node.certificates.authority.pem()
        edge = f"127.0.0.1:{node.ports['edge', 'edge']}"
        context = ssl.create_default_context(cadata=trusted.decode())
        async with httpx.AsyncClient(base_url=f"https://{edge}", verify=context, timeout=30) as http:
            assert await answered(http) == "It is five."
            assert (await asked(http, "wrong")).status_code == 401
        async with hedgerow.AsyncClient(edge, tls=Tls(trusted), api_key=KEY) as client:
            assert (await client.ask("And three and two?")).text == "It is five."
        assert provider.asked[0]["model"] == "careless"


async def test_pods_in_plain_text_answer_callers_in_the_cluster_and_share_a_redis(tmp_path: Path) -> None:
    more = {"tls": {"mode": "none"}, "edge": {"enabled": False}, "redis": {"mode": "bundled"}}
    async with running(more, tmp_path) as (node, _):
        for name in node.answer.workloads:
            assert await node.passes(name, "livenessProbe")
        http_port = node.ports["gateway", "http"]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http_port}", timeout=30) as http:
            assert await answered(http) == "It is five."
        url = node.processes["cache"].spec.environment["HEDGEROW_CACHE_REDIS_URL"]
        async with redis.asyncio.from_url(url) as shared:
            assert await until(lambda: shared.keys("hedgerow:cache:entry:*"), WAIT_S, every_s=0.1)
