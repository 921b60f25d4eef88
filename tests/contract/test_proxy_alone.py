"""What `hedgerow[proxy]` starts imports no library that runs models; what needs one names the extra that brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "faiss", "ctranslate2", "tokenizers", "torch")
# What Python would say of a package that is not installed.
WITHOUT = f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Gone())
"""


@pytest.mark.parametrize("module", ["cache", "gateway", "router", "llm"])
def test_a_service_of_the_proxy_imports_no_model_library(module: str) -> None:
    engines = "import services.llm.openai_engine, services.llm.anthropic_engine, services.cache.exact_only"
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
