"""Meshes in containers, as the compose file and `hedgerow render compose` say, asked by every way in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

import hedgerow
from tests.containers.composed import Composed, composed
from tests.containers.docker import REPOSITORY

pytestmark = pytest.mark.timeout(3600)  # the first of them builds the images
SAMPLES = REPOSITORY / "samples"
FRANCE, PARIS = "What is the capital of France?", "The capital of France is Paris."
JAPAN = "What is the capital of Japan?"  # public models answer it in one sentence
_FILE = f"""\
models:
  small: {{folder: {REPOSITORY}/tests/models/demo-llm-draft, options: {{max_model_len: 2048, enforce_eager: true}}}}
"""


@pytest.fixture(scope="module")
def demo(images: dict[str, str]) -> Iterator[Composed]:
    """The mesh that `docker compose up` starts."""
    with composed(REPOSITORY / "docker-compose.yml", "hedgerow-test") as running:
        yield running


def asked_by_http(url: str, question: str) -> str | None:
    """The answer by OpenAI's own client."""
    with openai.OpenAI(base_url=f"http://{url}/v1", api_key="none") as client:
        asked = client.chat.completions.create(model="auto", messages=[{"role": "user", "content": question}])
        return asked.choices[0].message.content


def test_a_question_is_answered_by_grpc_and_then_from_the_cache_by_http(demo: Composed) -> None:
    with hedgerow.Client(demo.grpc) as client:
        first = client.ask(JAPAN, temperature=0)
        assert (first.finish_reason, first.degraded) == ("stop", ())
    assert asked_by_http(demo.http, JAPAN) == first.text != ""


def test_the_embedding_model_that_the_image_brings_knows_a_paraphrase(demo: Composed) -> None:
    with hedgerow.Client(demo.grpc) as client:
        first = client.ask(JAPAN)
        again = client.ask("Tell me the capital of Japan.", min_similarity=0.8)
    assert (again.text, again.cache.verdict) == (first.text, "semantic")


def test_each_tier_has_its_model_and_quality_drafts_the_words_of_its_prompt(demo: Composed) -> None:
    repeat = "Repeat after me, twice: the quick brown fox jumps over the lazy dog near the river bank."
    with hedgerow.Client(demo.grpc) as client:
        fast = client.ask(repeat, tier="fast", cache="bypass", max_tokens=40)
        quality = client.ask(repeat, tier="quality", cache="bypass", max_tokens=40)
    assert (fast.model, quality.model) == ("smollm2-135m-int8", "smollm2-135m")
    assert quality.usage.drafted_tokens > 0


def test_an_answer_is_made_to_match_a_schema(demo: Composed) -> None:
    with hedgerow.Client(demo.grpc) as client:
        answer = client.ask(FRANCE, json_schema={"enum": ["red", "blue"]}, cache="bypass")
    assert answer.text in ('"red"', '"blue"')


def test_a_voice_is_transcribed_and_a_picture_classified(demo: Composed) -> None:
    with hedgerow.Client(demo.grpc) as client:
        heard = client.ask(audio=SAMPLES / "voices/capital-of-france.flac")
        assert heard.transcript == FRANCE
        seen = client.ask("What is in the image?", images=[SAMPLES / "photographs/cat.jpg"])
        assert any("cat" in label.name or "Egyptian" in label.name for label in seen.sights[0])


def test_every_container_ends_in_order_on_sigterm(demo: Composed) -> None:
    ended = demo.stop()
    assert ended == dict.fromkeys(ended, 0)


def test_a_rendered_mesh_file_answers_by_grpc_and_http(images: dict[str, str], tmp_path: Path) -> None:
    file, written = tmp_path / "mesh.yaml", tmp_path / "docker-compose.yml"
    file.write_text(_FILE)
    command = [sys.executable, "-m", "hedgerow_cli", "render", "compose", str(file), "--output", str(written)]
    subprocess.run(command, check=True, timeout=60)
    with composed(written, "hedgerow-rendered") as mesh:
        with hedgerow.Client(mesh.grpc) as client:
            assert client.ask(FRANCE, temperature=0).text == PARIS
        assert asked_by_http(mesh.http, FRANCE) == PARIS
        ended = mesh.stop()
        assert ended == dict.fromkeys(ended, 0)
