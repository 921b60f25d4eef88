"""Credentials in logs and errors."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from services.runtime.security.secrets import HeaderSecret, HttpUrl, Url, is_secret, shown, without_passwords


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("", ""),
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("redis://:p@ss@cache:6379/0", "redis://**********@cache:6379/0"),
        ("http://host/v1?key=1", "http://host/v1?**********"),
    ],
)
def test_a_url_shows_where_it_leads_to_and_keeps_the_rest(url: str, seen: str) -> None:
    held = Url(url)
    assert held.get_secret_value() == url
    assert bool(held) == bool(url)
    assert {str(held), f"{held}"} == {seen}
    assert repr(held) == f"Url({seen!r})"


class _Provider(BaseModel):
    base_url: HttpUrl = Url("")
    model: str = ""


class _Settings(BaseModel):
    provider: _Provider = _Provider()
    providers: dict[str, _Provider] = {}
    headers: dict[str, SecretStr] | None = None


def test_a_group_that_is_printed_or_dumped_shows_as_little() -> None:
    settings = _Settings(provider=_Provider(base_url=Url("http://a:hunter2@host")))
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()} {settings.model_dump()}"
    assert "http://**********@host" in settings.model_dump_json()


def test_which_settings_are_never_shown_is_known_by_type_and_by_name() -> None:
    assert is_secret(_Settings, ("provider", "base_url"))
    assert is_secret(_Settings, ("provider", "api_key"))
    assert is_secret(_Settings, ("providers", "big", "base_url"))
    assert is_secret(_Settings, ("headers", "x-pin"))
    assert is_secret(_Settings, ("tenants", "acme", "keys", 0, "sha256"))
    assert not is_secret(_Settings, ("providers", "big", "model"))
    assert not is_secret(_Settings, ("provider", "model"))
    assert not is_secret(_Settings, ("other", 0, "model"))


def test_nested_values_are_masked_by_their_own_names() -> None:
    assert shown({"token": "a", "n": 1, "urls": ["redis://a@b"]}) == {
        "token": "**********",
        "n": 1,
        "urls": ["redis://**********@b"],
    }


def test_the_rest_of_a_line_stays() -> None:
    line = "cannot reach http://a:b@host:1/x?y=z, nor redis://:p@h; mail me@example.org at http://other/"
    assert without_passwords(line) == (
        "cannot reach http://**********@host:1/x?********** nor redis://**********@h; mail me@example.org "
        "at http://other/"
    )


class Caller(BaseModel):
    """Settings of a caller."""

    authorization: HeaderSecret


def test_the_line_end_of_a_credential_is_left_out() -> None:
    assert Caller(authorization=SecretStr("Bearer sesame\n")).authorization.get_secret_value() == "Bearer sesame"


@pytest.mark.parametrize("credential", ["Bearer a\nx-role: admin", "sesame\x1b[2J"])
def test_a_credential_that_no_header_can_have_is_refused_and_not_shown(credential: str) -> None:
    with pytest.raises(ValidationError, match="one line, without control characters") as refused:
        Caller(authorization=SecretStr(credential))
    assert credential not in str(refused.value)
