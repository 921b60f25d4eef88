"""Settings: typed, with units in their names, read in one place, and strict.

A setting comes from, strongest first: the command line (`--lookup-budget-ms 20`), the environment
(`HEDGEROW_CACHE_LOOKUP_BUDGET_MS=20`), a YAML file (`HEDGEROW_CACHE_CONFIG=cache.yaml`), the default. A name that no
setting has is an error at start-up, never silently ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, CliSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from hedgerow import InvalidArgument
from hedgerow.channel import MAX_MESSAGE_BYTES, ping_timeout_ms
from services.runtime import yaml_file
from services.runtime.errors import shorten
from services.runtime.process.fixed import Fixed, NoneFixed
from services.runtime.process.suggestions import hint, nearest, nearest_at, offered, replacement
from services.runtime.security.secrets import AS_SHOWN, HIDDEN, Url, is_secret, shown, without_passwords

_LAST_PORT = 65_535


class ServiceSettings(BaseSettings):
    """Settings of every service process. A service's own class sets `env_prefix` to `HEDGEROW_<SERVICE>_`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,  # one field of a group may be set alone
        cli_kebab_case=True,
        frozen=True,
    )

    address: str = Field("127.0.0.1:0", description="Address of gRPC, host:port.")
    metrics_address: str = Field(
        "", description="Address of Prometheus metrics, `/readyz` and `/livez`, host:port. Empty: none."
    )
    otlp_endpoint: Annotated[Url, AS_SHOWN] = Field(
        Url(""), description="OTLP/gRPC endpoint for traces, http://host:port. Empty: none."
    )
    trace_ratio: float = Field(1.0, ge=0, le=1, description="Share of new traces that are recorded.")
    trust_traceparent: bool = Field(
        True, description="Record traces that a caller's `traceparent` samples; else `trace_ratio` decides."
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Lowest level that is logged.")
    grace_ms: int = Field(5_000, ge=0, le=600_000, description="After SIGTERM, time for calls in flight to finish.")
    overlaps: Fixed[bool] = Field(
        False,
        description="Whether another server of this process may have the same addresses, so that one takes the other's "
        "place without a gap. It listens only once it is assembled.",
    )
    lame_duck_ms: int = Field(
        0, ge=0, le=60_000, description="After SIGTERM, time in which new calls are still accepted. Part of `grace_ms`."
    )
    tls_dir: Path | None = Field(
        None,
        description="Folder with `tls.crt`, `tls.key` and `ca.crt` for mutual TLS; changes are followed. Empty: plain "
        "text.",
    )
    plaintext: bool = Field(
        False,
        validate_default=True,
        description="Serve plain text beyond loopback, in a network with its own encryption.",
    )
    max_message_bytes: int = Field(MAX_MESSAGE_BYTES, ge=1024, description="Largest message that is accepted.")
    max_concurrent_streams: Fixed[int] = Field(
        256,
        ge=1,
        description="Calls in flight per connection; more of them wait. Envoy begins up to 100 on a new connection, "
        "before it knows the limit.",
    )
    max_waiting_calls: Fixed[int] = Field(
        8_192,
        ge=1,
        description="Calls that have arrived and that the process has not begun, over all connections. gRPC drops "
        "more of them without a reason: the caller gets CANCELLED. Each takes 16 KiB and what came of its message.",
    )

    blocked_loop_ms: Fixed[int] = Field(
        50,
        ge=0,
        le=60_000,
        description="Report what blocks the event loop for longer, by function: in `hedgerow_loop_blocked_seconds` and "
        "in the log. 0: do not watch.",
    )

    first_message_ms: Fixed[int] = Field(
        0,
        ge=0,
        le=600_000,
        description="The longest that a call's first message may take to arrive whole, from its headers on. 0: as long "
        "as the call, where only our own services call.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _YamlFile(settings_cls), NoneFixed(settings_cls)

    @field_validator("tls_dir", mode="before")
    @classmethod
    def _empty_is_none(cls, given: object) -> object:
        return given or None

    @field_validator("address", "metrics_address", "http_address", check_fields=False)
    @classmethod
    def _has_a_port(cls, address: str, info: ValidationInfo) -> str:
        """gRPC would take 443 without a port, and 4464 for 70000."""
        port, is_path = address.rpartition(":")[2], info.field_name == "address" and address.startswith("unix:")
        is_number = port.isascii() and port.isdecimal() and len(port) <= len(str(_LAST_PORT))
        if address and not is_path and not (is_number and int(port) <= _LAST_PORT):
            raise ValueError(f"host:port, with a port from 0 to {_LAST_PORT}")
        return address

    @field_validator("plaintext")
    @classmethod
    def _plain_text_stays_here(cls, allowed: bool, info: ValidationInfo) -> bool:
        address = info.data.get("address")  # None: it is refused itself
        if address is not None and not (allowed or info.data.get("tls_dir") or is_loopback(address)):
            raise ValueError(f"a `tls_dir`, or true, to serve beyond loopback, at {shown(address)}")
        return allowed

    @property
    def drain_ms(self) -> int:
        """The rest of `grace_ms` once the lame duck time is over."""
        return max(self.grace_ms - self.lame_duck_ms, 0)

    def of_the_service(self) -> dict[str, Any]:
        """The settings without those of the process."""
        return self.model_dump(exclude={"otlp_endpoint", "trace_ratio", "trust_traceparent", "log_level"})

    @property
    def processes(self) -> int:
        """The number of processes that share the service's port."""
        return 1

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """The settings that say where it serves: what those processes share."""
        return ("address",)


Settings = TypeVar("Settings", bound=ServiceSettings)


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to `host:port` or `unix:path`."""
    host = address.rpartition(":")[0].strip("[]")
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or address.startswith("unix:")


def is_local_host(host: str) -> bool:
    """Whether a `Host` header is an address, or a name that means this machine everywhere. The owner of any other
    name can point it here. No header at all is no browser's."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        return bool(ip_address(name))
    return not host or name == "localhost" or name.endswith(".localhost")


def read_yaml(path: str) -> Any:
    """The file's content; errors name the file."""
    with Path(path).open(encoding="utf-8") as file:
        try:
            return yaml_file.parse(file)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


class _YamlFile(PydanticBaseSettingsSource):
    """The YAML file named by `<PREFIX>CONFIG`. Unknown keys reach pydantic, which refuses them."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise AssertionError("not used: the file is read as a whole")

    def __call__(self) -> dict[str, Any]:
        path = os.environ.get(f"{self.config.get('env_prefix', '')}CONFIG")
        if not path:
            return {}
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise ValueError(f"{path}: a mapping of settings, got {type(content).__name__}")
        return content


class RefusedSettings(ValueError):
    """The problems of settings, a line for each: service, field, limit and value."""


def load(cls: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    """The settings of `read`; exits with 2 and the problems if they are invalid."""
    try:
        return read(cls, argv, prog)
    except RefusedSettings as refused:
        print(refused, file=sys.stderr)
        raise SystemExit(2) from None


def read(cls: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    """Read `cls` from all sources. Raises `RefusedSettings`, whose lines begin with `prog`."""
    problems = list(_unknown(cls, os.environ))
    try:
        ping_timeout_ms()  # not a service's own: the SDK reads it as well
        settings = _from_all_sources(cls, argv, prog)
        if not problems:
            return settings
    except ValidationError as error:
        problems += [_message(cls, problem) for problem in error.errors()]
    except yaml.YAMLError as error:
        problems += [without_passwords(_where(error))]
    except (ValueError, OSError, InvalidArgument) as error:
        problems += [without_passwords(line) for line in _without_arguments(str(error)).splitlines()]
    raise RefusedSettings("\n".join(f"{prog}: {each}" for each in problems))


def _message(cls: type[BaseSettings], problem: Any) -> str:
    """The problems of the settings. A value is left out where it may be a credential, be it only misspelt."""
    path = problem["loc"]
    message = f"{'.'.join(map(str, path)) or 'settings'}: {_without(problem['input'], problem['msg'])}"
    if path and problem["type"] == "extra_forbidden":
        if instead := replacement(cls.model_config.get("env_prefix", ""), path):
            return f"{'.'.join(map(str, path))}: {instead}"
        return f"{message}{hint(nearest_at(cls, path))}"
    if not path or problem["type"] == "missing":
        return message
    given = HIDDEN if is_secret(cls, path) else shorten(repr(shown(problem["input"], str(path[-1]))))
    return f"{message}, got {given}"


def _without(given: object, message: str) -> str:
    """The message, with what was given, where a validator of ours repeats it, as it may be shown."""
    for repeated in {given, str(Path(given))} if isinstance(given, str) and given else ():
        message = message.replace(repeated, shown(given))
    return without_passwords(message)


def _without_arguments(message: str) -> str:
    """The message of argparse, without the values of options that it does not know."""
    before, unknown, rest = message.partition("unrecognized arguments: ")
    names = [word.partition("=")[0] for word in rest.split() if word.startswith("-")]
    return f"{before}no such setting: {', '.join(names) or 'a value without its name'}" if unknown else message


def _where(error: yaml.YAMLError) -> str:
    """The problem of the file, without the line that is."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return "the file of settings is no YAML"


def _from_all_sources(cls: type[Settings], argv: Sequence[str], prog: str) -> Settings:
    if not argv:  # a parser of all settings takes four times as long as the rest
        return cls()
    command_line = CliSettingsSource[Any](cls, cli_prog_name=prog, cli_parse_args=list(argv), cli_exit_on_error=False)
    return cls(_cli_settings_source=command_line)


def _unknown(cls: type[BaseSettings], environ: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable with the class's prefix that is no setting."""
    prefix = cls.model_config.get("env_prefix", "")
    known = {f"{prefix}{name}".upper() for name in (*cls.model_fields, "config")}
    for name in environ:
        if prefix and name.startswith(prefix) and name.split("__")[0] not in known:
            near = nearest(name.removeprefix(prefix).lower(), offered(cls))
            suggested = hint(f"{prefix}{near}".upper() if near else "")
            yield f"{name}: {replacement('', [name.split('__')[0]]) or f'no such setting{suggested}'}"
