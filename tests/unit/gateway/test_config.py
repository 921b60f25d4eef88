"""Beyond loopback a gateway needs keys, unless a setting opens it explicitly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from services.gateway.config import GatewaySettings
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.settings.answer_time import StageBudget, StageBudgets, StageName
from services.gateway.upstream.replica import make_breaker
from services.runtime.process.config import load
from tests.clock import loop_clock

BEYOND = ("--address", "0.0.0.0:50050", "--plaintext", "true")
DIGEST = "0" * 64
KEYED = json.dumps({"acme": {"keys": [DIGEST]}})


def start(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> GatewaySettings:
    monkeypatch.setenv("HEDGEROW_GATEWAY_LLM_ADDRESSES", '{"m": "127.0.0.1:1"}')
    return load(GatewaySettings, arguments, prog="gateway")


@pytest.mark.parametrize("tenants", [(), ("--tenants", '{"acme": {"premium": true}}')])
def test_without_a_key_it_does_not_start_beyond_loopback_and_says_what_allows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tenants: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        start(monkeypatch, *BEYOND, *tenants)
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("gateway: allow_anonymous: ")
    assert "a key of a tenant (in `tenants` or `tenants_file`), or true," in said
    assert "0.0.0.0:50050" in said


@pytest.mark.parametrize(
    ("arguments", "anonymous"),
    [
        ((), True),
        ((*BEYOND, "--tenants", KEYED), False),
        ((*BEYOND, "--tenants-file", "tenants.yaml"), False),  # what is in it is known when it is read
        ((*BEYOND, "--allow-anonymous", "true"), True),
        (("--address", "0.0.0.0:50050", "--tls-dir", "/tls", "--edge-tokens", "true"), False),
        (("--tls-dir", "/tls", "--edge-tokens", "true"), False),
    ],
)
def test_with_keys_or_tokens_or_on_purpose_or_on_loopback_it_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], anonymous: bool
) -> None:
    assert start(monkeypatch, *arguments).anonymous is anonymous


STORED = ("--responses", '{"ttl_ms": 1000}')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--edge-tokens", "true"), "edge_tokens: Value error, `edge_tokens` requires `tls_dir`"),
        (
            ("--tls-dir", "/tls", "--edge-tokens", "true", "--allow-anonymous", "true"),
            "allow_anonymous: Value error, false with `edge_tokens`",
        ),
        (("--stage-caps-ms", '{"gard": 200}'), "stage_caps_ms.gard"),
        (("--stage-caps-ms", '{"guard": 0}'), "stage_caps_ms.guard"),
        (("--stage-caps-ms", '{"guard": 600001}'), "stage_caps_ms.guard"),
        (("--serves", '{"gpt": ["embeddings"]}'), "serves: Value error, models of `llm_addresses`, got gpt"),
        (("--serves", '{"m": ["embeddings"]}'), "a model that chats is needed: m serves other requests alone"),
        (("--serves", '{"m": []}'), "serves: Value error, m: embeddings, rerank or moderations, got none"),
        (("--serves", '{"m": ["chat"]}'), "serves.m.0: "),
        (("--ready", '{"services": ["audio"]}'), "with an address, got audio without audio_address"),
        (("--workers", "2", *STORED), "responses.ttl_ms: 0, or a redis_url, got 2 workers without a common store"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit):
        start(monkeypatch, *arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--workers", "2", "--redis-url", "redis://r")])
def test_one_worker_or_a_redis_stores_responses(monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]) -> None:
    assert start(monkeypatch, *STORED, *more).responses.ttl_ms == 1000


@pytest.mark.parametrize("allowed", [{"plaintext": True}, {"tls_dir": "/certificates"}])
def test_http_beyond_loopback_wants_tls_or_a_word_that_plain_text_is_meant(allowed: dict[str, object]) -> None:
    given = {"llm_addresses": {"m": "a:1"}, "http_address": "0.0.0.0:8000", "allow_anonymous": True}
    with pytest.raises(ValueError, match="on loopback, or with a `tls_dir`"):
        GatewaySettings(**given)
    assert GatewaySettings(**given, **allowed).shared_addresses == ("address", "http_address")


def test_http_beyond_loopback_wants_a_key() -> None:
    given = {"llm_addresses": {"m": "a:1"}, "http_address": "0.0.0.0:8000", "plaintext": True}
    with pytest.raises(ValueError, match="a key of a tenant"):
        GatewaySettings(**given)
    assert not GatewaySettings(**given, tenants={"acme": {"keys": ["0" * 64]}}).anonymous


def test_an_operator_caps_single_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = start(monkeypatch, "--stage-caps-ms", '{"guard": 200, "cache": 50}').stage_budgets
    assert budgets.guard == StageBudget(share=0.1, cap_ms=200)
    assert budgets.cache.cap_ms == 50
    assert budgets.tools == StageBudgets().tools


def test_every_stage_with_a_budget_can_be_capped() -> None:
    assert get_args(StageName) == tuple(StageBudgets.model_fields)


def test_off_without_quotes_is_the_word_in_a_file_of_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("hedge: {mode: off}\nhits: {others: off}\nguard: {secrets: off}\nprompt: {diet: off}\n")
    monkeypatch.setenv("HEDGEROW_GATEWAY_CONFIG", str(file))
    settings = start(monkeypatch)
    assert settings.hedge.mode == settings.hits.others == settings.guard.secrets == settings.prompt.diet == "off"


@pytest.mark.paused
@pytest.mark.parametrize("profile", ["latency", "transparent"])
async def test_answers_that_take_a_minute_to_begin_break_a_model_off_only_where_latency_counts(
    monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    settings = start(monkeypatch, "--profile", profile)
    breaker = make_breaker(settings.breaker, "m", LatencyBaseline(1, loop_clock), loop_clock)
    for _ in range(10):
        if permit := breaker.enter("acme"):
            permit.succeeded(60)
    assert breaker.would_admit("acme") is (profile == "transparent")
