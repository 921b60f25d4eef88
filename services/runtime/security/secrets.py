"""What must not be shown: the passwords in URLs, and the values of settings that are credentials.

Settings reach people in three ways: `config explain` prints them, a start that is refused says what it got, and the log
says what went wrong. `shown` is for the first two, `without_passwords` for every line of the log, and `Url` is for
settings that are URLs, so that nothing else that prints one shows more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, PlainSerializer, SecretStr

HIDDEN = "**********"  # as pydantic shows a secret
_CREDENTIAL = re.compile(r"(token|secret|password|api_key|authorization)$", re.IGNORECASE)
_KEYS = ("keys", "sha256")  # of tenants: where a digest belongs, a key itself may stand
_BEFORE_AT = re.compile(r"(?P<scheme>[\w+.-]+://)?.*@", re.DOTALL)  # whatever else is wrong with it
_RUN = re.compile(r"[^\s\"']++")  # a URL ends with it
_SCHEME = re.compile(r"(?<![\w+.-])[\w+.-]++:/{1,2}")
_QUERY = re.compile(r"(?<![\w+.-])[\w+.-]++://[^?]*\?(?=.)")


AS_SHOWN = PlainSerializer(str, return_type=str, when_used="json")


class Url(SecretStr):
    """A URL that may have a password, which is not printed."""

    def _display(self) -> str:
        return _masked(self.get_secret_value())


def http_url(url: Url) -> Url:
    """Raises ValueError for what cannot be asked over HTTP. Its text says nothing of the value."""
    try:
        parts = urlsplit(url.get_secret_value())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if url and not usable:
        raise ValueError("http://host:port or https://host:port")
    return url


HttpUrl = Annotated[Url, AfterValidator(http_url), AS_SHOWN]


def one_line(credential: SecretStr) -> SecretStr:
    """The credential without surrounding blanks, such as the line end of a file. Raises ValueError for one that no
    header can have."""
    line = credential.get_secret_value().strip()
    if not line.isprintable():
        raise ValueError("one line, without control characters")
    return SecretStr(line)


HeaderSecret = Annotated[SecretStr, AfterValidator(one_line)]


def shown(value: Any, name: str = "") -> Any:
    """A setting's value for people's eyes, and those inside it. `name` is the setting's own."""
    if isinstance(value, Mapping):
        return {key: shown(member, str(key)) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [shown(member, name) for member in value]
    if isinstance(value, str) and value:
        return HIDDEN if _CREDENTIAL.search(name) else _masked(value)
    return value


def without_passwords(line: str) -> str:
    """A line of a log: what stands before the `@` of a URL is hidden, and what follows its `?`."""
    if ":/" not in line:
        return line
    return _RUN.sub(lambda found: _without_query(_without_user(found[0])), line)


def _without_user(run: str) -> str:
    at = run.rfind("@")
    scheme = _SCHEME.search(run, 0, at) if at > 0 else None
    return f"{run[: scheme.end()]}{HIDDEN}{run[at:]}" if scheme else run


def _without_query(run: str) -> str:
    last = run.rfind("?", 0, -1)  # with something behind it
    query = _QUERY.search(run, 0, last + 2) if last > 0 else None
    return f"{run[: query.end()]}{HIDDEN}" if query else run


def is_secret(cls: type[BaseModel], path: Iterable[str | int]) -> bool:
    """Whether the setting at `path` is one that is never shown, right or wrong: by its type, also as a value of a
    mapping, or by its name."""
    types: Sequence[type] = [cls]
    for step in map(str, path):
        fields = (each.model_fields.get(step) for each in types if issubclass(each, BaseModel))
        if field := next(filter(None, fields), None):
            types = list(_types(field.annotation))
        if _CREDENTIAL.search(step) or step in _KEYS or any(issubclass(each, SecretStr) for each in types):
            return True
    return False


def _types(annotation: Any) -> Iterator[type]:
    """The types that an annotation is made of."""
    parts = get_args(annotation)
    if not parts and isinstance(annotation, type):
        yield annotation
    for part in parts:
        yield from _types(part)


def _masked(text: str) -> str:
    """The value without any part that may belong to a credential: all text before its last `@`."""
    url, asked, _ = text.partition("?") if ":/" in text else (text, "", "")  # a `Path` has made one of `//`
    hidden = _BEFORE_AT.sub(lambda found: f"{found['scheme'] or ''}{HIDDEN}@", url, count=1)
    return f"{hidden}?{HIDDEN}" if asked else hidden
