"""Services of `hedgerow[proxy]` import no library that runs models; an error for a missing one names its extra."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HEAVY = ("numpy", "faiss", "ctranslate2", "tokenizers", "torch", "vllm", "envoy", "pyqwest")
# As if these packages were not installed.
WITHOUT = f"""
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {HEAVY} else self.finder.find_spec(name, path, target)
sys.meta_path = [Without(finder) for finder in sys.meta_path]
"""


@pytest.mark.parametrize("module", ["cache", "gateway", "router", "llm"])
def test_a_service_of_the_proxy_imports_no_model_library(module: str) -> None:
    engines = "import services.llm.providers.openai, services.llm.providers.anthropic, services.cache.exact_parts"
    stores = "import services.cache.file_store, services.cache.redis_store"
    code = f"{WITHOUT}\nimport services.{module}.__main__\n{engines if module == 'llm' else stores}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_embedder_that_is_not_installed_is_named_with_its_extra() -> None:
    code = f"""{WITHOUT}
import asyncio
from services.cache import parts
from services.cache.config import CacheSettings
try:
    asyncio.run(parts.load(CacheSettings()))
except parts.NotInstalled as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("embedder: ctranslate2 needs the package "), done.stderr
    assert "pip install 'hedgerow[cache,embedder]'; or `none`, for exact answers alone" in done.stdout


def up(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"{WITHOUT}\nfrom hedgerow_cli import main; main()"
    own = {name: value for name, value in os.environ.items() if "_API_KEY" not in name and name != "HEDGEROW_MODELS"}
    command = [sys.executable, "-c", code, "up", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**own, **environment})


def test_up_with_nothing_to_serve_says_the_three_ways() -> None:
    done = up()
    assert done.returncode == 1
    for way in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_DEPLOYMENT", "--model NAME=http", "mesh.yaml"):
        assert way in done.stderr, done.stderr


def test_up_of_the_demo_says_what_to_install() -> None:
    done = up("--demo")
    assert (done.returncode, done.stderr) == (
        1,
        "hedgerow: vllm is not installed; install it with: pip install 'hedgerow[demo]'\n",
    )


@pytest.mark.parametrize(
    ("section", "place", "extra"),
    [
        ("models: {m: ./folder}", "models.m", "llm"),
        ("models: {m: 'http://127.0.0.1:9/v1'}\ncache: {semantic: true}", "cache.semantic", "cache,embedder"),
        (
            "models: {m: 'http://127.0.0.1:9/v1'}\ngateway: {settings: {hits: {others: any}}}",
            "gateway.settings.hits",
            "cache,embedder",
        ),
    ],
)
def test_a_mesh_file_that_needs_more_names_the_extra(tmp_path: Path, section: str, place: str, extra: str) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "mesh.yaml"
    file.write_text(section)
    done = up(str(file))
    assert done.returncode == 1
    assert f"{file}: {place}: needs " in done.stderr
    assert f"pip install 'hedgerow[{extra}]'" in done.stderr


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("transcribe x.wav", "a file that can be read, got x.wav"),
        ("transcribe --stream x.wav", "numpy is not installed; install it with: pip install 'hedgerow[cli]'"),
        ("ask --audio x.wav --stream", "numpy is not installed; install it with: pip install 'hedgerow[cli]'"),
    ],
)
def test_recordings_are_sent_without_numpy_which_only_playing_them_needs(command: str, problem: str) -> None:
    code = f"{WITHOUT}\nfrom hedgerow_cli import main; main()"
    words = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_the_simulated_provider_of_the_hedging_page_needs_the_extra_proxy_alone() -> None:
    probe = "import runpy, sys; sys.modules['h2'] = None; runpy.run_module('bench.provider', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", probe, "http1"], input="", capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("http://127.0.0.1:")


def test_the_version_is_printed_without_the_command_lines_own_packages() -> None:
    probe = "import sys; sys.modules['typer'] = None; from hedgerow.__main__ import main; main()"
    command = [sys.executable, "-c", probe, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"hedgerow {version('hedgerow')}\n"
