"""No setting shows a password: not where settings are explained, not where a start is refused, not in the log."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.settings import Setting, settings, settings_classes
from services.runtime import explain
from services.runtime.process.config import ServiceSettings, load
from services.runtime.process.logs import setup_logging
from tests.contract.accepting import give_only

MARK = "hunter2"
URLS = (
    f"redis://user:{MARK}@127.0.0.1:6379/0",
    f"redis://127.0.0.1:6379/0?password={MARK}",
    f"http://{MARK}@127.0.0.1:4317",
    f"https://user:{MARK} {MARK}@127.0.0.1/v1?api-key={MARK}&b={MARK}",
    f"redis://:{MARK}/{MARK}@127.0.0.1:6379/0",  # in which the password looks like a port
    f"redis:/:{MARK}@127.0.0.1",
    f"user:{MARK}@127.0.0.1:6379",
)
NEEDED = {
    "HEDGEROW_GATEWAY_LLM_ADDRESSES": '{"m": "127.0.0.1:1"}',
    "HEDGEROW_AUDIO_MODEL": "m",
    "HEDGEROW_ROUTER_MODELS": '[{"name": "m", "tier": "fast", "context_tokens": 1}]',
}
TEXTS = [
    pytest.param(cls, at, id=at.variable + at.path.partition("[]")[2])
    for cls in settings_classes()
    for at in settings(cls)
    if at.schema.get("type") not in ("integer", "number", "boolean")
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment with only the variables that services need."""
    give_only(monkeypatch, NEEDED)
    (tmp_path / "topology.yaml").write_text('services: {llm: {endpoints: [{address: "127.0.0.1:1"}]}}')
    monkeypatch.setenv("HEDGEROW_CONTROL_TOPOLOGY", str(tmp_path / "topology.yaml"))
    return monkeypatch


def given(setting: Setting, url: str) -> Iterator[str]:
    """The URL as the setting's own value, and wherever one might stand in JSON."""
    if setting.schema.get("type") == "string":
        yield url
        return
    key = setting.path.rpartition("[].")[2] if "[]" in setting.path else ""
    for value in (url, {"m": url}, [url], {"m": [url]}, [{key: url}], {"m": {"keys": [url]}}):
        yield value if isinstance(value, str) else json.dumps(value)


def shown(cls: type[ServiceSettings], arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """All that is said of the settings when the service is started, and when they are explained."""
    said = ""
    with contextlib.suppress(SystemExit):
        taken = load(cls, arguments, prog="service")
        said = " ".join(str(row) for row in explain.rows(taken))
    out, err = capsys.readouterr()
    return said + out + err


@pytest.mark.parametrize(("cls", "setting"), TEXTS)
def test_a_url_with_a_password_is_masked_in_every_setting(
    cls: type[ServiceSettings],
    setting: Setting,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for url in URLS:
        for value in given(setting, url):
            environment.setenv(setting.variable, value)
            assert MARK not in shown(cls, [], capsys), value


@pytest.mark.parametrize("cls", settings_classes(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    ("said", "expected_text"),
    [
        (f"redis_ulr: redis://:{MARK}@127.0.0.1", "redis_ulr"),
        (f"no_such_key: {MARK}", "no_such_key"),
        (f'otlp_endpoint: "http://{MARK}@127.0.0.1', "line 1, column"),
        (f"otlp_endpoint: [{MARK}", "line 1, column"),
        (f"otlp_endpoint: [{MARK}]", "otlp_endpoint"),
        (f"otlp_endpoint: {{a: {MARK}}}", "otlp_endpoint"),
        (f"{MARK}", "a mapping of settings"),
        (f"grace_ms: redis://:{MARK}@127.0.0.1", "grace_ms"),
    ],
)
def test_an_unusable_file_is_reported_without_its_content(
    cls: type[ServiceSettings],
    said: str,
    expected_text: str,
    environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "settings.yaml").write_text(said)
    environment.setenv(f"{cls.model_config.get('env_prefix')}CONFIG", str(tmp_path / "settings.yaml"))
    printed = shown(cls, [], capsys)
    assert expected_text in printed
    assert MARK not in printed


@pytest.mark.parametrize("cls", settings_classes(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--redis-ulr", f"redis://:{MARK}@127.0.0.1"],
        ["--api-key", MARK],
        [f"--api-key={MARK}"],
        [MARK],
        ["--otlp-endpoint", f"http://a:{MARK}@b"],
        ["--grace-ms", f"http://a:{MARK}@b"],
    ],
)
def test_an_unusable_command_line_is_reported_without_its_values(
    cls: type[ServiceSettings], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = shown(cls, arguments, capsys)
    assert printed
    assert MARK not in printed


@pytest.mark.parametrize("variable", ["OPENAI__API_KYE", "OPENAI__API_KEY", "VLLM__HF_TOKEN", "OPENAI"])
def test_a_credential_is_hidden_where_it_is_misspelt_or_misplaced_too(
    variable: str, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cls,) = (cls for cls in settings_classes() if "llm" in cls.__module__)
    environment.setenv(
        f"HEDGEROW_LLM_{variable}", json.dumps({"api_key": MARK, "x": 1}) if "__" not in variable else MARK
    )
    assert MARK not in shown(cls, [], capsys)


def test_a_provider_is_given_one_credential_and_neither_is_shown(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cls,) = (cls for cls in settings_classes() if "llm" in cls.__module__)
    environment.setenv("HEDGEROW_LLM_OPENAI__BASE_URL", f"http://user:{MARK}@127.0.0.1/v1")
    environment.setenv("HEDGEROW_LLM_OPENAI__API_KEY", MARK)
    printed = shown(cls, [], capsys)
    assert "openai.api_key: Value error, none together with a `base_url` with a user" in printed
    assert MARK not in printed


@pytest.mark.parametrize("url", [url for url in URLS if "://" in url and " " not in url])
def test_no_line_of_the_log_has_a_password(url: str) -> None:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:]
    setup_logging("service", "INFO", stream)
    try:
        logging.getLogger("other").warning("cannot reach %s, again in %d s", url, 5)
        try:
            raise OSError(f"cannot reach {url}")
        except OSError:
            logging.getLogger("other").exception("failed")
    finally:
        logging.getLogger().handlers[:] = before
    assert "again in 5 s" in stream.getvalue()
    assert MARK not in stream.getvalue()
