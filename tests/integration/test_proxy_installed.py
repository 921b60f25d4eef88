"""`pip install 'hedgerow[proxy]'` into an environment of its own: what it takes there, and that it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.contract.test_images import DISTRIBUTIONS
from tests.integration.running_up import Up, ports_in_a_row, running
from tests.integration.simulated_provider import provider

pytestmark = pytest.mark.timeout(300)
REPOSITORY = Path(__file__).parents[2]
MOST_BYTES = 150 * 10**6
UNWANTED = ("torch", "vllm", "faiss", "numpy", "transformers", "tokenizers", "ctranslate2")
_NO_INDEX = ("Failed to fetch", "error sending request", "Could not connect", "dns error", "network was disabled")
QUESTION = "What is the capital of Japan?"


def uv(*arguments: str | Path) -> None:
    """Run uv. Skips the test where the package index cannot be reached."""
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS") or ""
    environment = {**os.environ, "UV_FIND_LINKS": links} if links else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-m", "uv", *map(str, arguments)], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode and any(words in done.stderr for words in _NO_INDEX):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of this checkout: the SDK's and the mesh's."""
    folder = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for project in (REPOSITORY, REPOSITORY / "hedgerow"):
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    return folder


def environment(folder: Path, wheels: Path, wanted: str) -> Path:
    """A virtual environment with what `wanted` brings, in the versions of the lock."""
    uv("venv", "--python", sys.executable, folder)
    given = ("--find-links", wheels, "-c", REPOSITORY / "requirements.lock", "--python", folder / "bin" / "python")
    uv("pip", "install", "--compile-bytecode", *given, wanted)
    return folder


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("proxy") / "venv", wheels, "hedgerow[proxy]")


@contextmanager
def up(installed: Path, folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[Up, OpenAI]]:
    """`hedgerow up` of that environment, and a client of it."""
    port = ports_in_a_row(40)
    command = [str(installed / "bin" / "hedgerow"), "up", *arguments]
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OPENAI_BASE_URL")}
    given = {name: value for name, value in given.items() if not name.endswith("_API_KEY")}
    if not arguments or not arguments[0].endswith(".yaml"):
        command += ["--base-port", str(port)]
    else:
        Path(arguments[0]).write_text(Path(arguments[0]).read_text().replace("50050", str(port)))
    state = folder / "state"
    command += ["--state-dir", str(state)]
    with running(command, state, port, cwd=folder, env={**given, **environment}) as mesh:
        key = environment.get("HEDGEROW_API_KEY", "none")
        with OpenAI(base_url=f"http://127.0.0.1:{port + 30}/v1", api_key=key, max_retries=0) as client:
            yield mesh, client


def said(client: OpenAI, model: str) -> tuple[str | None, str]:
    """(the answer, what the account says of the cache)."""
    answer: Any = client.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTION}])
    return answer.choices[0].message.content, answer.hedgerow["cache"]["verdict"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A provider, in a process of its own."""
    with provider() as (_, url):
        yield url


def test_the_proxy_installation_is_small_and_has_no_package_that_runs_models(installed: Path) -> None:
    assert sum(file.lstat().st_size for file in installed.rglob("*") if file.is_file()) <= MOST_BYTES
    (packages,) = installed.glob("lib/python*/site-packages")
    brought = {path.name.lower() for path in packages.iterdir()}
    assert [name for name in brought if name.startswith(UNWANTED)] == []
    assert {"hedgerow", "hedgerow_cli", "launcher", "services"} <= brought


def test_the_sdk_alone_brings_no_service_and_its_command_says_what_to_install(wheels: Path, tmp_path: Path) -> None:
    sdk = environment(tmp_path / "venv", wheels, "hedgerow")
    isolated = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        program = [str(sdk / "bin" / command[0]), *command[1:]]
        return subprocess.run(program, cwd=tmp_path, env=isolated, capture_output=True, text=True, check=False)

    assert run("python", "-c", "import hedgerow").returncode == 0
    for package in ("services", "launcher", "hedgerow_cli"):
        assert f"No module named '{package}'" in run("python", "-c", f"import {package}").stderr
    assert run("hedgerow", "--version").stdout == f"hedgerow {DISTRIBUTIONS['hedgerow']['version']}\n"
    assert "pip install 'hedgerow[proxy]'" in run("hedgerow", "up").stderr


def test_the_proxy_answers_for_a_url(installed: Path, url: str, tmp_path: Path) -> None:
    from anthropic import Anthropic  # with 3,000 modules: only the worker that needs them has them

    with up(installed, tmp_path, "--model", f"m={url}") as (mesh, client):
        assert said(client, "m")[0]
        assert "m" in {model.id for model in client.models.list()}
        assert any(line.startswith("OpenAI's clients:") for line in mesh.lines)
        with Anthropic(base_url=str(client.base_url).removesuffix("/v1/"), api_key="none", max_retries=0) as other:
            messages = [{"role": "user", "content": QUESTION}]
            assert other.messages.create(model="m", max_tokens=64, messages=messages).content[0].text


def test_the_proxy_answers_for_a_key_in_the_environment(installed: Path, url: str, tmp_path: Path) -> None:
    keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url, "HEDGEROW_API_KEY": "of-callers"}
    with up(installed, tmp_path, **keys) as (mesh, client):
        assert said(client, "gpt-5-mini")[0]
        assert said(client, "gpt-5")[0]
        assert any("gpt-5-mini" in line and "key from OPENAI_API_KEY" in line for line in mesh.lines)


def test_the_proxy_stores_exact_answers_if_the_file_enables_it(installed: Path, url: str, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    settings = "{stage_caps_ms: {cache: 10000}}"
    file.write_text(
        f"models: {{m: {{url: '{url}', model: sim}}}}\n"
        "cache: {exact: true}\n"
        f"gateway: {{address: 50050, settings: {settings}}}\n"
    )
    with up(installed, tmp_path, str(file)) as (_, client):
        first = said(client, "m")
        while (stored := said(client, "m"))[1] == "miss":  # the cache gets an answer after its caller
            pass
    assert (first[1], stored) == ("miss", (first[0], "exact"))
