"""Paths of other services' clients."""

from __future__ import annotations

import pytest

from services.gateway.http.app import by_own_path
from services.gateway.http.fields import parse
from services.gateway.http.server.exchange import NAMED_MODEL


@pytest.mark.parametrize(
    ("path", "own", "model"),
    [
        ("/openai/deployments/gpt/chat/completions", "/v1/chat/completions", "gpt"),
        ("/openai/deployments/org/model 1/embeddings", "/v1/embeddings", "org/model 1"),
        ("/openai/deployments/gpt/completions", "/v1/completions", "gpt"),
        ("/openai/deployments/chat/completions/completions", "/v1/completions", "chat/completions"),
        ("/openai/deployments/whisper/audio/transcriptions", "/v1/audio/transcriptions", "whisper"),
        ("/openai/v1/chat/completions", "/v1/chat/completions", None),
        ("/openai/responses/resp_1/input_items", "/v1/responses/resp_1/input_items", None),
        ("/openai/models", "/v1/models", None),
        ("/v2/rerank", "/v1/rerank", None),
        ("/rerank", "/v1/rerank", None),
        ("/chat/completions", "/v1/chat/completions", None),
        ("/models/org/model", "/v1/models/org/model", None),
        ("/audio/transcriptions", "/v1/audio/transcriptions", None),
        ("/anthropic/v1/messages", "/v1/messages", None),
        ("/v1/v1/messages/count_tokens", "/v1/messages/count_tokens", None),
        ("//v1/responses", "/v1/responses", None),
    ],
)
def test_a_path_of_another_service_is_one_of_ours(path: str, own: str, model: str | None) -> None:
    scope = by_own_path({"path": path, "method": "POST"})
    assert (scope["path"], scope.get(NAMED_MODEL), scope["method"]) == (own, model, "POST")


@pytest.mark.parametrize(
    "path",
    ["/", "/cache", "/health", "/metrics", "/v1", "/chats", "/v1/rerank", "/v2/embed",
     "/v2/rerank/", "/openai", "/openai/deployments/gpt", "/openai/deployments/embeddings",
     "/openai/deployments//embeddings", "/openai/deployments/gpt/images/generations", "/x/openai/v1/models", ""],
)  # fmt: skip
def test_other_paths_stay(path: str) -> None:
    assert by_own_path({"path": path}) == {"path": path}


def test_the_model_of_the_path_stands_for_that_of_the_body() -> None:
    assert parse(b'{"model": "x", "n": 1}', model="gpt").text("model") == "gpt"
    assert parse(b"{}", model="gpt").text("model") == "gpt"
    assert parse(b'{"model": "x"}').text("model") == "x"
