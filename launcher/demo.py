"""The mesh of `hedgerow demo` and `hedgerow up`: its services, its models and what each process is configured with.

The models are public ones from the catalogue (`launcher.catalog`): two sizes of arithmetic of one small chat model, a
multilingual Whisper and an ImageNet classifier. Tests start the same mesh on other models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from launcher import catalog
from launcher.mesh import MeshError, collections_at, service_spec
from launcher.processes import ServiceSpec

# By port, from the base port on. The gateway comes first: its address is the one that callers know.
SERVICES = ("gateway", "cache", "router", "llm-fast", "llm-quality", "vision", "audio")
# Each model has one replica here, so that the other model is the one to hedge with. A mesh that is asked a few times a
# minute saves up too slowly for a second call with the usual share of 5%, and where the CPU is slow every call has one.
_HEDGE = {"across_models": True, "max_share": 1}
LIMITS = {"DEFAULT_MAX_TOKENS": "256", "MAX_TOKENS_CAP": "512"}  # of the profile `latency`, for each model
PULLED = ("smollm2-135m-int8", "smollm2-135m", "whisper-base", "efficientnet-lite0")


@dataclass(frozen=True)
class LanguageModel:
    """One language model, served by vLLM, and its row in the router's table."""

    folder: Path
    tier: Literal["fast", "quality"]
    context_tokens: int
    usd_per_mtok: tuple[float, float]  # of prompts and of completions; made up, so that answers show a cost
    expected_ms: tuple[float, float]  # to the first token and to the last, until there are measurements
    vllm: Mapping[str, str] = field(default_factory=dict)  # more settings of the engine, by name in upper case

    @property
    def name(self) -> str:
        """The name by which requests ask for it."""
        return self.folder.name

    def row(self) -> dict[str, Any]:
        """The router's entry."""
        return {
            "name": self.name,
            "tier": self.tier,
            "context_tokens": self.context_tokens,
            "prompt_usd_per_mtok": self.usd_per_mtok[0],
            "completion_usd_per_mtok": self.usd_per_mtok[1],
            "expected_ttft_ms": self.expected_ms[0],
            "expected_total_ms": self.expected_ms[1],
        }

    def settings(self) -> dict[str, str]:
        """The settings of the llm service that serves it."""
        given = {"MODEL": str(self.folder), "MAX_MODEL_LEN": str(self.context_tokens), "MAX_NUM_SEQS": "16"}
        return {
            "MODEL_NAME": self.name,
            **LIMITS,
            **{f"VLLM__{name}": value for name, value in {**given, **self.vllm}.items()},
        }


@dataclass(frozen=True)
class DemoModels:
    """The models of a demo mesh. `vision` is a folder inside of the one that the vision service serves."""

    fast: LanguageModel
    quality: LanguageModel
    vision: Path
    audio: Path
    gateway: Mapping[str, str] = field(default_factory=dict)  # settings that these models need, by name in upper case

    @property
    def language(self) -> tuple[LanguageModel, LanguageModel]:
        """Both language models, the faster one first."""
        return self.fast, self.quality

    def check(self) -> None:
        """Raise `MeshError` where a model's folder is missing."""
        for folder in (*(model.folder for model in self.language), self.vision, self.audio):
            if not folder.is_dir():
                raise MeshError(f"no model {folder.name} in {folder.parent}: run `hedgerow models pull {folder.name}`")


def public_models() -> DemoModels:
    """The catalogue's models, where `hedgerow models pull` places them; they may not be there yet."""
    int8, bf16, whisper, efficientnet = (catalog.home(name) for name in PULLED)
    # 0.5 GiB hold 22,000 tokens of this model. A prompt's own words are drafted for the answer (prompt lookup), which
    # pays where an answer quotes its question; a second network to draft with would be as large as the model itself.
    kv_cache = {"CPU_KVCACHE_SPACE_GIB": "0.5"}
    lookup = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    return DemoModels(
        fast=LanguageModel(int8, "fast", 8192, (0.05, 0.10), (100, 2_000), kv_cache),
        quality=LanguageModel(
            bf16, "quality", 8192, (0.25, 0.50), (150, 3_000), {**kv_cache, "SPECULATIVE_CONFIG": json.dumps(lookup)}
        ),
        vision=efficientnet / efficientnet.name,  # the vision service is given a folder of models
        audio=whisper,
    )


def demo_mesh(
    ports: int | Sequence[int], state_dir: Path, models: DemoModels, *, http_port: int = 0, otlp_endpoint: str = ""
) -> list[ServiceSpec]:
    """The demo's services, the front (the gateway) last.

    `ports` is the first of as many in a row as there are `SERVICES`, or one for each in their order; `http_port` is
    where the gateway serves HTTP, 0: nowhere.
    """
    settings = demo_settings(models)
    numbers = range(ports, ports + len(SERVICES)) if isinstance(ports, int) else ports
    at = {name: f"127.0.0.1:{port}" for name, port in zip(SERVICES, numbers, strict=True)}
    settings["cache"]["DATABASE"] = str(state_dir.resolve() / "cache.db")
    settings["cache"]["COLLECTIONS_DATABASE"] = str(state_dir.resolve() / "collections.db")
    settings["gateway"] |= found_at(at, models)
    if http_port:
        settings["gateway"]["HTTP_ADDRESS"] = f"127.0.0.1:{http_port}"
    everywhere = {"OTLP_ENDPOINT": otlp_endpoint} if otlp_endpoint else {}
    return [service_spec(name, name, at[name], {**everywhere, **own}) for name, own in settings.items()]


def demo_settings(models: DemoModels) -> dict[str, dict[str, str]]:
    """The settings of each of `SERVICES` that are the same in every mesh, the gateway last."""
    vision = {"MODELS_DIR": str(models.vision.parent), "DEFAULT_MODEL": models.vision.name}
    return {
        "cache": {},
        "router": {"MODELS": json.dumps([model.row() for model in models.language])},
        "llm-fast": models.fast.settings(),
        "llm-quality": models.quality.settings(),
        "vision": vision,
        "audio": {"MODEL": str(models.audio)},
        "gateway": {"HEDGE": json.dumps(_HEDGE), **models.gateway},
    }


def found_at(addresses: Mapping[str, str], models: DemoModels) -> dict[str, str]:
    """The gateway's settings that say where the other services are; `addresses` are by the names of `SERVICES`."""
    served = {models.fast.name: addresses["llm-fast"], models.quality.name: addresses["llm-quality"]}
    alone = {f"{name.upper()}_ADDRESS": addresses[name] for name in ("vision", "audio", "cache", "router")}
    tools = {"sources": collections_at(addresses["cache"])}
    return {**alone, "LLM_ADDRESSES": json.dumps(served), "TOOLS": json.dumps(tools)}
