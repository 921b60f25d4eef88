"""Every service's settings are described, strict and bounded, and `docs/settings.md` lists them as they are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs import settings as page
from docs.settings import Setting
from hedgerow.engines import PROVIDER_ENGINES
from services.runtime.process.config import ServiceSettings, load
from services.runtime.process.fixed import is_fixed
from tests.contract.accepting import give_only

CLASSES = page.settings_classes()
SETTINGS = [
    pytest.param(cls, at, id=at.variable + at.path.partition("[]")[2] + at.path.partition("{}")[2])
    for cls in CLASSES
    for at in page.settings(cls)
]
LIMITS = {"minimum": -1, "exclusiveMinimum": 0, "maximum": 1, "exclusiveMaximum": 0}  # and the step that breaks each

each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
each_setting = pytest.mark.parametrize(("cls", "setting"), SETTINGS)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    give_only(monkeypatch, {})


def complaints(cls: type[ServiceSettings], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that a service prints when it refuses the environment; none when it accepts it."""
    with contextlib.suppress(SystemExit):
        load(cls, [], prog="service")
    return capsys.readouterr().err.splitlines()


def beyond(setting: Setting) -> Iterator[tuple[str, Any, Any]]:
    """(kind, limit, a value just outside) for each limit of a number."""
    for kind, step in LIMITS.items():
        if kind in setting.schema:
            yield kind, setting.schema[kind], setting.schema[kind] + step


def give(setting: Setting, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set `setting` by its environment variable."""
    inside = {setting.path.rpartition(".")[2]: value}
    if "[]" in setting.path:
        value = [inside]
    if "{}" in setting.path:
        value = {"x": inside}
    monkeypatch.setenv(setting.variable, value if isinstance(value, str) else json.dumps(value))


def test_every_service_has_one_settings_class_with_its_own_prefix() -> None:
    for cls in CLASSES:
        assert cls.model_config.get("env_prefix") == f"HEDGEROW_{cls.__module__.split('.')[1].upper()}_"
    assert len({cls.__module__ for cls in CLASSES}) == len(CLASSES)


@each_setting
def test_every_setting_says_what_it_is(cls: type[ServiceSettings], setting: Setting) -> None:
    assert len(setting.schema.get("description", "")) > 5


@each_setting
def test_every_number_has_a_least_value(cls: type[ServiceSettings], setting: Setting) -> None:
    if setting.schema.get("type") in ("integer", "number"):
        assert setting.schema.keys() & {"minimum", "exclusiveMinimum"}


@each_setting
def test_a_limit_of_tokens_fits_the_fields_of_the_contract(cls: type[ServiceSettings], setting: Setting) -> None:
    if setting.path.endswith(("context_tokens", "default_max_tokens", "max_tokens_cap", "tenants{}.max_tokens")):
        assert setting.schema["maximum"] < 2**31


@each_setting
def test_a_value_beyond_a_limit_is_refused_by_field_limit_and_value(
    cls: type[ServiceSettings], setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _, limit, value in beyond(setting):
        give(setting, value, monkeypatch)
        path = setting.path.replace("[]", ".0").replace("{}", ".x")
        named = [line for line in complaints(cls, capsys) if path in line]
        assert any(str(limit) in line and f"got {value!r}" in line.replace("'", "") for line in named), named


@each_setting
def test_every_default_is_valid_and_may_be_given_alone(
    cls: type[ServiceSettings], setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    default = setting.schema.get("default")
    if default is None or "[]" in setting.path or "{}" in setting.path:
        return
    give(setting, default, monkeypatch)
    assert not [line for line in complaints(cls, capsys) if line.startswith(f"service: {setting.path.split('.')[0]}")]


def fixed_fields(cls: type[BaseModel], at: str = "", *, within: bool = False) -> Iterator[tuple[str, FieldInfo]]:
    """(path, field) of all that only code may pass; members of a list or of names are not looked for."""
    for name, field in cls.model_fields.items():
        fixed, group = within or is_fixed(field), field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            yield from fixed_fields(group, f"{at}{name}__", within=fixed)
        elif fixed:
            yield f"{at}{name}", field


@pytest.mark.parametrize(
    ("cls", "path", "field"),
    [pytest.param(cls, *each, id=f"{cls.__name__}.{each[0]}") for cls in CLASSES for each in fixed_fields(cls)],
)
def test_fixed_settings_have_a_reason_and_are_refused_by_name(
    cls: type[ServiceSettings],
    path: str,
    field: FieldInfo,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(field.description or "") > 5
    monkeypatch.setenv(f"{cls.model_config.get('env_prefix', '')}{path}".upper(), "1")
    instead = "derived from other settings: " if field.default is None else "always "
    assert complaints(cls, capsys)[0].startswith(f"service: {path.replace('__', '.')}: no longer a setting, {instead}")


def test_the_page_begins_with_ten_settings_that_there_are() -> None:
    assert len(page.FIRST) == 10
    listed = {row.variable for _, rows in page.tables() for row in rows}
    assert {variable for variable, _ in page.FIRST} <= listed


def test_every_key_of_an_entry_has_a_row_or_is_in_the_description_of_the_whole() -> None:
    listed = {row.path for _, rows in page.tables() for row in rows}
    for cls in CLASSES:
        every = {setting.path: setting for setting in page.settings(cls)}
        for path in every.keys() - listed - {row.path for row in page.settings(ServiceSettings)}:
            whole, _, key = path.partition("{}." if "{}." in path else ".")
            shown = listed if whole in PROVIDER_ENGINES else every[whole].schema["description"]
            assert (f"{PROVIDER_ENGINES[0]}.{key}" if whole in PROVIDER_ENGINES else key) in shown, path


def test_an_operator_has_at_most_155_settings() -> None:
    """150, and room for a service to come; keys of entries aside."""
    assert sum(len(rows) for title, rows in page.tables() if title.startswith("## ")) <= 155


@each_class
def test_an_unknown_variable_is_refused_by_name(
    cls: type[ServiceSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{cls.model_config.get('env_prefix', '')}GRACE_MILLIS"
    monkeypatch.setenv(name, "1")
    assert complaints(cls, capsys)[0].startswith(f"service: {name}: no such setting; did you mean ")


def test_the_page_of_settings_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.render(), "run `make docs`"


def test_every_setting_has_its_row_on_the_page() -> None:
    text = page.PAGE.read_text()
    rows = [row for title, rows in page.tables() for row in rows if title.startswith("## ")]
    assert [row.variable for row in rows if f"\n- `{row.variable}`" not in text] == []
