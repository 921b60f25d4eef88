"""Models of this project's own, for tests that need exact texts and a fast start; see README.md."""

from __future__ import annotations

import json
from pathlib import Path

from launcher.demo import DemoModels, LanguageModel

MODELS = Path(__file__).parent
SAMPLES = MODELS.parent / "samples"
LLM, DRAFT, VISION, WHISPER = (MODELS / name for name in ("demo-llm", "demo-llm-draft", "demo-vision", "demo-whisper"))

_VLLM = {
    "CPU_KVCACHE_SPACE_GIB": "0.25",  # of 32,768 tokens the larger model has 192 MiB, and its draft 32
    "ENFORCE_EAGER": "true",
    "TOOL_PARSER": "hermes",  # the form in which these models have learned to write calls
}
_DRAFTING = {"method": "draft_model", "model": str(DRAFT), "num_speculative_tokens": 4}
FIXTURES = DemoModels(
    fast=LanguageModel(DRAFT, "fast", 2048, (0.05, 0.10), (40, 150), _VLLM),
    quality=LanguageModel(
        LLM, "quality", 2048, (0.25, 0.50), (60, 400), {**_VLLM, "SPECULATIVE_CONFIG": json.dumps(_DRAFTING)}
    ),
    vision=VISION,
    audio=WHISPER,
    gateway={
        "IMAGE_NOTE": "image: {labels}",  # the notation that these models have learned
        "LABELS_PER_IMAGE": "1",
        "HEDGE": "{}",  # a test that asks a model gets an answer of this model
    },
)
