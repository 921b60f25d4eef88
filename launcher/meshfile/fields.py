"""Types of values in a mesh file. Files and variables that must exist are checked when the file is read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from hedgerow.identities import CONTEXT_SERVICES
from launcher.catalog import UnknownModel, entries, entry

_CREDENTIAL = re.compile(r"((^|[-_])(key|token|secret|password)|authorization)$", re.IGNORECASE)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
OFF = "off"
LAST_PORT = 65_535
_LONGEST_KEY_BYTES = 16 * 1024
_TYPING_ERROR = 0.8  # difflib's ratio from which a name is taken for a mistyped one of the catalogue


@dataclass(frozen=True)
class Surroundings:
    """The folder and environment of a mesh file. Rendering for other machines needs no providers' keys."""

    folder: Path
    environment: Mapping[str, str]
    keys_needed: bool = True


def is_url(text: str) -> bool:
    """Whether the text is meant as a URL."""
    return re.match(r"https?:", text) is not None


def is_folder(text: str, info: ValidationInfo) -> bool:
    """Whether the text means a folder and no name on the hub: it looks like a path, or the folder exists."""
    return text.startswith((".", "/", "~")) or os.path.isdir(_surroundings(info).folder / text)  # False for a long name


def is_catalogued(text: str) -> bool:
    """Whether the text means a model of the catalogue: its name, or a probable misspelling of one."""
    return bool("/" not in text and get_close_matches(text, entries(), n=1, cutoff=_TYPING_ERROR))


def credential_in(settings: Any) -> str:
    """The path of the first key, at any depth, whose name says that its value is a credential, such as `tools.key`;
    empty: none."""
    if isinstance(settings, list):
        return next(filter(None, map(credential_in, settings)), "")
    if not isinstance(settings, dict):
        return ""
    own = (name for name, value in settings.items() if isinstance(value, str) and _CREDENTIAL.search(name))
    below = (f"{name}.{path}" for name, value in settings.items() if (path := credential_in(value)))
    return next(own, "") or next(below, "")


def _surroundings(info: ValidationInfo) -> Surroundings:
    found = info.context
    assert isinstance(found, Surroundings)
    return found


def _to_path(given: Any, info: ValidationInfo) -> Any:
    if not isinstance(given, str) or not given or "\0" in given:
        raise ValueError("a path is needed")
    return path_from(_surroundings(info).folder, given)


def path_from(folder: Path, given: str) -> Path:
    """The path that a file in `folder` names. Raises ValueError for the home folder of a user that does not exist."""
    try:
        return (folder / Path(given).expanduser()).absolute()
    except RuntimeError:
        raise ValueError(f"a path is needed, {given.partition('/')[0]} is no user's home folder") from None


def _mode(path: Path) -> int:
    """The file mode of `path`, for `stat.S_ISDIR` and `stat.S_ISREG`; 0: there is no such file. Raises ValueError if
    the path cannot be looked up: it is too long, for example, or in another user's folder."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise ValueError(f"a path that can be read is needed ({error.strerror})") from None


def _is_folder(path: Path) -> Path:
    if not stat.S_ISDIR(_mode(path)):
        raise ValueError(f"a folder is needed, there is none at {path}")
    return path


def _is_file(path: Path) -> Path:
    if not stat.S_ISREG(_mode(path)):
        raise ValueError(f"a file is needed, there is none at {path}")
    return path


def _can_be_made(path: Path) -> Path:
    if stat.S_ISDIR(_mode(path)) or not stat.S_ISDIR(_mode(path.parent)):
        raise ValueError(f"a file in a folder that exists is needed, {path.parent} is none")
    return path


def _is_key_file(path: Path) -> Path:
    if not stat.S_ISREG(_mode(path)):
        raise ValueError("a file that holds the key is needed, there is none")
    return path


def _holds_a_key(path: Path) -> Path:
    read_key(path)
    return path


def _holds_a_key_where_needed(path: Path, info: ValidationInfo) -> Path:
    return _holds_a_key(path) if _surroundings(info).keys_needed else path


def read_key(path: Path) -> str:
    """The key in a file. Raises ValueError, whose message does not contain it."""
    try:
        with path.open(encoding="utf-8") as file:
            key = file.read(_LONGEST_KEY_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"a file that can be read is needed ({type(error).__name__})") from None
    if not key or len(key.split()) != 1:
        raise ValueError("a file with one key and nothing else is needed")
    return key


def _is_name(name: str) -> str:
    """A key in the place of its variable's name has small letters, dashes or dots; a name has none of these."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError(
            "the name of an environment variable is needed, in capitals, such as OPENAI_API_KEY; a key must not be in "
            "the file"
        )
    return name


def _is_set(name: str, info: ValidationInfo) -> str:
    environment = _surroundings(info).environment
    if not environment.get(name, "").strip():
        raise ValueError(f"the environment variable {name} {'is empty' if name in environment else 'is not set'}")
    return name


def _is_set_where_needed(name: str, info: ValidationInfo) -> str:
    return _is_set(name, info) if _surroundings(info).keys_needed else name


def http_url(url: str) -> str:
    """The URL. Raises ValueError for what cannot be asked over HTTP, with a text that says nothing of it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("http://host:port or https://host is needed")
    if "@" in parts.netloc or parts.query:
        raise ValueError("a URL without user, password and query is needed; a key goes where key_env or key_file says")
    return url


def _is_redis(url: str) -> str:
    if not re.match(r"(rediss?|unix)://", url):
        raise ValueError("redis://host:port/db is needed")
    if "@" in url or "?" in url:
        raise ValueError("a URL without user, password and query is needed; for others there is redis_url_env")
    return url


def _to_address(given: Any) -> Any:
    return f"127.0.0.1:{given}" if isinstance(given, int) and not isinstance(given, bool) else given


def _is_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]/]+)", host) or not re.fullmatch(r"\d{1,5}", port):
        raise ValueError("host:port, or a port on loopback, is needed")
    if not 1 <= int(port) <= LAST_PORT:
        raise ValueError(f"a port from 1 to {LAST_PORT} is needed")
    return address


def _to_off(given: Any) -> Any:
    return OFF if given is False else given  # as YAML reads the word


def _is_address_or_off(address: str) -> str:
    return address if address == OFF else _is_address(address)


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to `host:port`."""
    return address.rpartition(":")[0].strip("[]") in LOOPBACK


def _of_kind(kind: str) -> AfterValidator:
    """A name in the catalogue, of a model that serves there."""

    def checked(name: str) -> str:
        try:
            found = entry(name)
        except UnknownModel as error:
            raise ValueError(str(error)) from None
        if found.kind != kind:
            fitting = ", ".join(each.name for each in entries().values() if each.kind == kind)
            raise ValueError(f"{name} is a model of the kind {found.kind}; of the kind {kind} there are {fitting}")
        return name

    return AfterValidator(checked)


def _one_or_many(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _adds_context(name: str) -> str:
    if name not in CONTEXT_SERVICES:
        raise ValueError(f"no such service adds context; those that do: {', '.join(CONTEXT_SERVICES) or 'none'}")
    return name


HttpUrl = Annotated[str, AfterValidator(http_url)]
HttpUrls = Annotated[list[HttpUrl], BeforeValidator(_one_or_many, json_schema_input_type=str | list[str])]
RedisUrl = Annotated[str, AfterValidator(_is_redis)]
Port = Annotated[int, Field(ge=1, le=LAST_PORT)]
Address = Annotated[str, BeforeValidator(_to_address, json_schema_input_type=str | Port), AfterValidator(_is_address)]
AddressOrOff = Annotated[
    str,
    BeforeValidator(_to_address),
    BeforeValidator(_to_off, json_schema_input_type=str | Port | Literal[False]),
    AfterValidator(_is_address_or_off),
]
ExistingFolder = Annotated[Path, BeforeValidator(_to_path), AfterValidator(_is_folder)]
ExistingFile = Annotated[Path, BeforeValidator(_to_path), AfterValidator(_is_file)]
LanguageModel = Annotated[str, _of_kind("llm")]
SpeechModel = Annotated[str, _of_kind("audio")]
VisionModel = Annotated[str, _of_kind("vision")]
ContextService = Annotated[str, AfterValidator(_adds_context)]
NewFile = Annotated[Path, BeforeValidator(_to_path), AfterValidator(_can_be_made)]
_KeyFile = Annotated[Path, BeforeValidator(_to_path), AfterValidator(_is_key_file)]
KeyFile = Annotated[_KeyFile, AfterValidator(_holds_a_key_where_needed)]
VariableName = Annotated[str, AfterValidator(_is_name), AfterValidator(_is_set_where_needed)]
# Of callers: their digests are needed everywhere.
CallersKeyFile = Annotated[_KeyFile, AfterValidator(_holds_a_key)]
KeyNames = Annotated[
    list[Annotated[str, AfterValidator(_is_name), AfterValidator(_is_set)]],
    BeforeValidator(_one_or_many, json_schema_input_type=str | list[str]),
]
Digest = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]
