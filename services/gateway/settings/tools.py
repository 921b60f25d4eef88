"""The tools that the mesh itself calls."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from services.gateway.settings.group import Group
from services.runtime.process.fixed import Fixed
from services.runtime.security.secrets import HeaderSecret, HttpUrl, Url


class ToolSourceSettings(Group):
    """A source of tools: exactly one of `address`, `url` and `command`."""

    address: str = Field("", description="A service of `hedgerow.tool.v1`, also as xds:///name or a list.")
    identity: str = Field("tool", min_length=1, description="With a `tls_dir`: the identity in its certificate.")
    url: HttpUrl = Field(Url(""), description="An MCP server, by streamable HTTP.")
    authorization: HeaderSecret = Field(SecretStr(""), description="Header `authorization` of requests to it.")
    command: tuple[str, ...] = Field((), description="An MCP server, started as a child of each worker.")
    environment: dict[str, SecretStr] = Field(
        {}, description="Variables of the command, beside PATH, HOME, LANG and USER."
    )
    prefix: str = Field("", max_length=32, pattern="^[A-Za-z0-9_-]*$", description="Prefix of its tools' names.")
    tools: tuple[str, ...] = Field((), description="Tools that are used, by their own names. Empty: all.")
    call_ms: float = Field(1_000, ge=1, le=600_000, description="Time that an answer waits for one call.")
    concurrency: int = Field(16, ge=1, le=10_000, description="Calls at once, from each worker.")
    queue_ms: Fixed[float] = Field(100, ge=0, le=60_000, description="The longest that a call waits for a slot.")
    reusable_ms: int = Field(
        0,
        ge=0,
        le=86_400_000,
        description="With `url` or `command`: time for which results of read-only tools are reused.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("address", "url", "command") if getattr(self, name)]
        if len(ways) != 1:
            raise ValueError(f"one of address, url and command, got {' and '.join(ways) or 'none'}")
        return self


class ToolSettings(Group):
    """The tools that the mesh itself calls, and how far that may go."""

    sources: dict[Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")], ToolSourceSettings] = Field(
        {}, description="Sources of tools by name."
    )
    max_steps: int = Field(2, ge=1, le=32, description="Most rounds of calls before a model must answer.")
    max_calls: int = Field(2, ge=1, le=128, description="Most calls of a model for one answer.")
    max_tools: Fixed[int] = Field(
        64, ge=1, le=1_000, description="Most tools of one source; further ones are left out."
    )
    max_description_bytes: Fixed[int] = Field(
        2_048, ge=1, description="Longest description of a tool; the rest is cut off."
    )
    max_arguments_bytes: Fixed[int] = Field(16_384, ge=2, description="Largest arguments of a call.")
    max_result_bytes: int = Field(16_384, ge=1, description="Size at which a result is cut.")
    max_message_bytes: Fixed[int] = Field(
        1_048_576, ge=1_024, description="Largest message of an MCP server; at a larger one its connection is closed."
    )
    max_messages_per_s: Fixed[int] = Field(
        500,
        ge=1,
        description="Most messages of an MCP server, of 8 KiB each; at more it is connected again, after a pause.",
    )
    list_ms: Fixed[float] = Field(
        2_000, ge=1, le=60_000, description="The longest that a source may take to list its tools."
    )
    refresh_ms: Fixed[float] = Field(
        30_000, ge=10, le=60_000, description="How old a list may be; while its source is down the last one counts."
    )
    reused_bytes: Fixed[int] = Field(
        16_777_216, ge=0, description="The most bytes of results that are kept to be reused, in each worker."
    )
