"""The next steps that `hedgerow up` prints when the mesh serves: how to send requests."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow_cli import running
from hedgerow_cli.served import here

if TYPE_CHECKING:
    from launcher.mesh import Mesh
    from launcher.meshfile.models import Model
    from launcher.meshfile.schema import MeshFile

DEFAULT_TARGET = "127.0.0.1:50050"


def demo_steps(gateway: str, http: str) -> str:
    where = _option("--gateway", gateway, DEFAULT_TARGET)
    return f"""
Try, in another terminal:
  hedgerow ask{where} "What is the capital of Japan?"
  hedgerow ask{where} --budget-ms 300 "Write a long story about a fox."

Any client of OpenAI's, with base_url=http://{http}/v1 and whatever key:
  curl -N http://{http}/v1/chat/completions -H "content-type: application/json" \\
    -d '{{"model": "auto", "stream": true, "messages": [{{"role": "user", "content": "What can you do?"}}]}}'

Ctrl-C stops everything.
"""


def file_steps(file: Path, state_dir: Path, said: MeshFile) -> str:
    """Next steps with the mesh of a file, once it serves."""
    found = [each.resolve() for each in running.folders()] == [state_dir.resolve()]  # by commands, without an option
    where = _option("--gateway", here(said.gateway.address), DEFAULT_TARGET if found else "")
    folder = "" if found else _option("--state-dir", str(state_dir), "")
    variable = next((name for tenant in said.tenants.values() for name in tenant.key_env), "")
    key = f"HEDGEROW_API_KEY=${variable} " if variable not in ("", "HEDGEROW_API_KEY") else ""
    models = ", ".join(said.models)
    http_address = here(said.gateway.http_address)
    http = f"\nOpenAI's clients: base_url=http://{http_address}/v1\n" if http_address else ""
    return f"""
Models: {models}. Try, in another terminal:
  {key}hedgerow ask{where} "What can you do?"
  hedgerow status{folder}
{http}
Edit {file}: the mesh follows.

Ctrl-C stops everything.
"""


def file_warnings(file: Path, said: MeshFile, host: str) -> list[str]:
    """One where meshes without a file listen beyond loopback, as in a container, and this one does not."""
    from launcher.mesh import HTTP_OFFSET
    from launcher.meshfile.fields import is_loopback

    address = said.gateway.address
    if is_loopback(f"{host}:0") or not is_loopback(address):
        return []
    port = int(address.rpartition(":")[2])
    wanted = f'gateway: {{address: "{host}:{port}", http: "{host}:{port + HTTP_OFFSET}", plaintext: true}}'
    return [
        f"{file}: the gateway listens on {address}, which callers outside of this machine or container cannot reach; "
        f"for {host} (HEDGEROW_UP_HOST) set {wanted}"
    ]


def url_warnings(said: MeshFile) -> list[str]:
    """One for each URL without a path, which is seldom where a provider's API is."""
    return [
        f"model {name}: {url} has no path; the APIs of OpenAI and Anthropic, and servers like them, are at {url}/v1"
        for name, model in said.models.items()
        for url in (each.rstrip("/") for each in model.url)
        if url.count("/") == len("//")
    ]


def replica_steps(mesh: Mesh, state_dir: Path, tls: bool) -> str:
    from launcher.mesh import DEFAULT_STATE_DIR
    from launcher.replicas import CERTIFICATES, TOPOLOGY_FILE

    certificates = state_dir / CERTIFICATES
    where = _option("--gateway", mesh.services[-1].spec.address, DEFAULT_TARGET)
    where += _option("--ca-file", str(certificates / "ca.crt"), "") if tls else ""
    folder = _option("--state-dir", str(state_dir), str(DEFAULT_STATE_DIR))
    folder += _option("--tls-dir", str(certificates / "operator"), "") if tls else ""
    pids = {service.spec.name: service.process.pid for service in mesh.services if service.process}
    return f"""
Try, in another terminal. Envoy takes the question, a gateway answers it:
  hedgerow ask{where} "What is the capital of Japan?"

See every endpoint, and which configuration each client has taken:
  hedgerow mesh status{folder} --watch

Kill llm-quality-1, and ask again; it is started again:
  kill -9 {pids["llm-quality-1"]}
  hedgerow ask{where} --tier quality --cache bypass "What is 7 plus 5?"

Edit {state_dir / TOPOLOGY_FILE}: all clients follow at once.

Ctrl-C stops everything.
"""


def given_steps(said: MeshFile, kept: Path) -> str:
    """Next steps with a mesh of the models that were given, or found in the environment."""
    where = here(said.gateway.http_address)
    variable = next((name for tenant in said.tenants.values() for name in tenant.key_env), "")
    key = f"${variable}" if variable else "none"
    header = f' -H "authorization: Bearer {key}"' if variable else ""
    models = "\n".join(f"  {name:24} {_source(name, model)}" for name, model in said.models.items())
    return f"""
Models:
{models}

OpenAI's clients:     base_url=http://{where}/v1  api_key={key}
Anthropic's clients:  base_url=http://{where}     api_key={key}
  curl http://{where}/v1/chat/completions{header} -H "content-type: application/json" \\
    -d '{{"model": "{next(iter(said.models))}", "messages": [{{"role": "user", "content": "What can you do?"}}]}}'

As a mesh file, to be copied and added to: {kept}

Ctrl-C stops everything.
"""


def _source(name: str, model: Model) -> str:
    """Where a model is, and which key is sent there."""
    renamed = f"{model.model} at " if model.model not in ("", name) else ""
    key = f", key from {model.key_env}" if model.key_env else ""
    return f"{renamed}{', '.join(model.url)}{key}"


def _option(name: str, value: str, default: str) -> str:
    """As a shell takes it."""
    return "" if value == default else f" {name} {shlex.quote(value)}"
