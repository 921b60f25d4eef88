"""Code may pass a fixed field; the environment, a file and an option may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from services.runtime.process.config import RefusedSettings, ServiceSettings, read
from services.runtime.process.fixed import Fixed, refuse


class Window(BaseModel):
    span_s: Fixed[float] = 60
    share: float = 0.5


class Source(BaseModel):
    url: str
    queue: Fixed[int] = 100


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="HEDGEROW_SHOP_")

    window: Window = Window()
    tuning: Fixed[Window] = Window(share=0.25)
    sources: dict[str, Source] = Field({})
    listed: tuple[Source, ...] = ()
    maybe: Window | None = None
    poll_ms: Fixed[int] = Field(1_000, ge=1)
    wait_ms: Fixed[int | None] = Field(None, ge=1, description="Longest wait. None: half of `poll_ms`.")
    warm: Fixed[bool] = True
    key: SecretStr = SecretStr("")


PREFIX = "HEDGEROW_SHOP_"
GIVEN = (
    ({"POLL_MS": "5"}, "poll_ms: no longer a setting, always 1,000"),
    ({"WARM": "false"}, "warm: no longer a setting, always true"),
    ({"WAIT_MS": "5"}, "wait_ms: no longer a setting, derived from other settings: half of `poll_ms`"),
    ({"WINDOW__SPAN_S": "5"}, "window.span_s: no longer a setting, always 60"),
    ({"WINDOW": {"span_s": 5, "share": 1}}, "window.span_s: no longer a setting, always 60"),
    ({"TUNING__SHARE": "1"}, "tuning.share: no longer a setting, always 0.25"),
    ({"SOURCES": {"a": {"url": "x", "queue": 1}}}, "sources.a.queue: no longer a setting, always 100"),
    ({"LISTED": [{"url": "x"}, {"url": "y", "queue": 1}]}, "listed.1.queue: no longer a setting, always 100"),
    ({"MAYBE": {"span_s": 5}}, "maybe.span_s: no longer a setting, always 60"),
    (
        {"POLL_MS": "5", "TUNING": {"span_s": 1}},
        "tuning.span_s: no longer a setting, always 60 (docs/upgrades.md)\n"
        "shop: poll_ms: no longer a setting, always 1,000",
    ),
)


def refusal(arguments: tuple[str, ...] = ()) -> str:
    """Why the settings are refused."""
    with pytest.raises(RefusedSettings) as refused:
        read(Settings, arguments, "shop")
    return str(refused.value)


@pytest.mark.parametrize(("variables", "why"), GIVEN)
def test_the_environment_cannot_give_it(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], why: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value if isinstance(value, str) else json.dumps(value))
    assert refusal() == f"shop: {why} (docs/upgrades.md)"


def test_a_file_cannot_give_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("window: {span_s: 5}\n")
    monkeypatch.setenv(f"{PREFIX}CONFIG", str(file))
    assert refusal().startswith("shop: window.span_s: no longer a setting")


def test_an_option_cannot_give_it_and_help_does_not_list_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(("--poll-ms", "5")).startswith("shop: poll_ms: no longer a setting")
    with pytest.raises(SystemExit):
        read(Settings, ("--help",), "shop")
    listed = capsys.readouterr().out
    assert "--window.share" in listed
    assert "--poll-ms" not in listed


def test_code_can_pass_it_within_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}WINDOW__SHARE", "1")
    made = Settings(poll_ms=5, window=Window(span_s=1))
    assert (made.poll_ms, made.window.span_s) == (5, 1)
    with pytest.raises(ValueError, match="poll_ms"):
        Settings(poll_ms=0)


def test_settings_that_are_not_fixed_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}WINDOW__SHARE", "1")
    assert read(Settings, ("--grace-ms", "7"), "shop").window == Window(share=1)


def test_the_schema_leaves_it_out() -> None:
    assert Window.model_json_schema()["properties"].keys() == {"share"}


def test_a_hint_never_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}POL_MS", "1")
    assert "POLL_MS" not in refusal()


def test_a_removed_setting_is_named_with_its_path() -> None:
    with pytest.raises(ValueError, match=r"^acme\.span_s: no longer a setting"):
        refuse(Window, {"span_s": 1}, at="acme.")
