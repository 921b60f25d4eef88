"""An MCP server, by streamable HTTP or as a child process. One task holds the connection and makes it again when it is
lost; calls of all requests travel over it side by side.

Imported where one is configured: the SDK takes half a second of CPU to import.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, cast

import mcp_types as mcp
from mcp import Client, MCPError
from pydantic import ValidationError

from hedgerow.chat.v1 import chat_pb2
from hedgerow.tool.v1 import tool_pb2
from services.gateway.settings.tools import ToolSettings, ToolSourceSettings
from services.gateway.tools import mcp_streams
from services.gateway.tools.mcp_streams import Ended, Streams
from services.gateway.tools.source import CallAttempt
from services.runtime.errors import Faulty, ServiceError, TooLate, Unavailable

_log = logging.getLogger(__name__)
_CONNECT_S = 30.0  # for a command that has to be fetched first
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0  # before it is connected again; twice as long each time
_LASTED_S = 60.0  # a connection that has lasted so long was a good one
_SILENT_S = 60.0  # without an answer, and without a call under way, a connection is given up
_MOST_PAGES = 100
_SELF = mcp.Implementation(name="hedgerow", version="0")  # the version is not disclosed
_KEY = "hedgerow/idempotency-key"
_QUESTIONS = ("query", "question", "q", "prompt")  # what servers call the argument that takes one
_CALL_ERRORS = (mcp.INVALID_PARAMS, mcp.METHOD_NOT_FOUND, mcp.INVALID_REQUEST)  # which the model reads


class McpSource:
    """`name` is for people."""

    kind: ClassVar[str] = "mcp"
    per_tenant: ClassVar[bool] = False

    def __init__(self, name: str, own: ToolSourceSettings, limits: ToolSettings):
        self._name, self._own, self._limits = name, own, limits
        self._client: Client | None = None
        self._problem = "not connected yet"
        self._up, self._lost = asyncio.Event(), asyncio.Event()
        self._calls = 0  # under way: a server may do one thing at a time
        self._answered_at = 0.0

    async def list(self, tenant: str, timeout_s: float) -> Sequence[tool_pb2.ToolDescription]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
                found = await self._all()
                self._answered_at = time.monotonic()
                return [self._described(tool) for tool in found]
        except TimeoutError:
            self._give_up_if_silent()
            why = f": {self._problem}" if self._problem else ""
            raise Unavailable(f"{self._name}: no list within {timeout_s * 1000:.0f} ms{why}") from None
        except Exception as error:
            raise self._translated(error) from None

    async def call(self, call: CallAttempt) -> tool_pb2.CallToolResponse:
        arguments, meta = json.loads(call.arguments), cast(mcp.RequestParamsMeta, {_KEY: call.key})
        self._calls += 1
        try:
            async with asyncio.timeout(call.timeout_s):
                result = _result(await self._connected().call_tool(call.name, arguments, meta=meta))
                self._answered_at = time.monotonic()
                return result
        except TimeoutError:
            raise TooLate(f"{self._name}: no answer within {call.timeout_s * 1000:.0f} ms") from None
        except MCPError as error:
            if error.code in _CALL_ERRORS and not self._lost.is_set():
                return tool_pb2.CallToolResponse(content=error.message, failed=True)
            raise self._translated(error) from None
        except Exception as error:
            raise self._translated(error) from None
        finally:
            self._calls -= 1

    async def run(self) -> None:
        pause_s = _PAUSE_S
        while True:
            began, why = time.monotonic(), ""
            try:
                await self._hold()
            except Exception as error:  # of whatever kind: the SDK, the network, the command
                why = _outline(error)  # for the log alone: it may hold addresses and paths
            except asyncio.CancelledError:  # the SDK's scopes may leak one that was not meant for this task
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
            if not self._lost.is_set():
                self._problem = "it cannot be reached"
            reason = f"{self._problem} ({why})" if why else self._problem
            _log.warning("tools of %s: no connection: %s", self._name, reason)
            pause_s = _PAUSE_S if time.monotonic() - began > _LASTED_S else min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _hold(self) -> None:
        """Connect, and stay until the connection is lost."""
        self._lost.clear()
        connecting = asyncio.timeout(_CONNECT_S)
        try:
            async with connecting, Client(self._streams(self._ended), cache=None, client_info=_SELF) as client:
                connecting.reschedule(None)
                self._client, self._problem, self._answered_at = client, "", time.monotonic()
                self._up.set()
                server = client.server_info
                _log.info("tools of %s: connected to %s", self._name, server.name if server else "a server")
                await self._lost.wait()
        finally:
            self._client = None
            self._up.clear()

    def _streams(self, ended: Ended) -> AbstractAsyncContextManager[Streams]:
        own = self._own
        if own.command:
            environment = {name: value.get_secret_value() for name, value in own.environment.items()}
            return mcp_streams.command(own.command, environment, self._limits, ended)
        url, authorization = own.url.get_secret_value(), own.authorization.get_secret_value()
        return mcp_streams.http(url, authorization, own.concurrency, self._limits, ended)

    def _ended(self, why: str) -> None:
        if not self._lost.is_set():  # the first reason counts
            self._problem = why
        self._lost.set()

    def _give_up_if_silent(self) -> None:
        """A server that hangs is started again, or connected again."""
        if self._client and not self._calls and time.monotonic() - self._answered_at > _SILENT_S:
            self._ended(f"no answer within {_SILENT_S:g} s")

    def _connected(self) -> Client:
        if self._client is None:
            raise Unavailable(f"{self._name}: {self._problem or 'not connected'}")
        return self._client

    async def _all(self) -> Sequence[mcp.Tool]:
        """The used tools of all pages; one more than the limit says that there are more."""
        used, found = self._own.tools, list[mcp.Tool]()
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._connected().list_tools(cursor=cursor)
            found += [tool for tool in page.tools if not used or tool.name in used]
            cursor = page.next_cursor
            if not cursor or len(found) > self._limits.max_tools:
                break
        return found

    def _described(self, tool: mcp.Tool) -> tool_pb2.ToolDescription:
        hints = tool.annotations
        reads = bool(hints and hints.read_only_hint)
        return tool_pb2.ToolDescription(
            tool=chat_pb2.Tool(
                name=tool.name, description=tool.description or "", parameters=json.dumps(tool.input_schema)
            ),
            idempotent=reads or bool(hints and hints.idempotent_hint),
            reusable_ms=self._own.reusable_ms if reads else 0,
            question_argument=_question_argument(tool.input_schema),
        )

    def _translated(self, error: Exception) -> ServiceError:
        """The error in our own tree. A server's own message goes to the log alone, because it may hold anything."""
        if isinstance(error, ServiceError):
            return error
        _log.info("tools of %s: %s", self._name, _outline(error))
        if isinstance(error, MCPError) and error.code == mcp.REQUEST_TIMEOUT:
            return TooLate(f"{self._name}: no answer in time")
        if isinstance(error, (RuntimeError, ValidationError)):
            return Faulty(f"{self._name}: it sent an invalid response")
        if isinstance(error, MCPError) and (error.code == mcp.CONNECTION_CLOSED or self._lost.is_set()):
            return Unavailable(f"{self._name}: {self._problem or 'the connection was lost'}")
        return Unavailable(f"{self._name}: {type(error).__name__}")


def _outline(error: BaseException) -> str:
    """An error's outline; of a group, that of the first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


def _question_argument(schema: dict[str, object]) -> str:
    """The argument that takes a question, where no other is needed."""
    properties, required = schema.get("properties"), schema.get("required") or ()
    if not isinstance(properties, dict) or not isinstance(required, (list, tuple)) or len(required) > 1:
        return ""
    for name in _QUESTIONS:
        shape = properties.get(name)
        if isinstance(shape, dict) and shape.get("type") == "string" and set(required) <= {name}:
            return name
    return ""


def _result(result: mcp.CallToolResult) -> tool_pb2.CallToolResponse:
    response = tool_pb2.CallToolResponse(failed=result.is_error)
    texts = [text for block in result.content if (text := _TEXTS[type(block)](block, response))]
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    response.content = "\n".join(texts)
    return response


def _link(block: mcp.ResourceLink, response: tool_pb2.CallToolResponse) -> str:
    title = block.title or block.name
    response.citations.add(source=str(block.uri), title=title, text=block.description or "")
    return f"[{title}]({block.uri})"


def _embedded(block: mcp.EmbeddedResource, response: tool_pb2.CallToolResponse) -> str:
    text = block.resource.text if isinstance(block.resource, mcp.TextResourceContents) else ""
    response.citations.add(source=str(block.resource.uri), text=text)
    return text or f"[{block.resource.uri}: no text]"


_TEXTS: dict[type, Callable[..., str]] = {
    mcp.TextContent: lambda block, response: block.text,
    mcp.ImageContent: lambda block, response: f"[a picture, {block.mime_type}: models read text alone]",
    mcp.AudioContent: lambda block, response: f"[a recording, {block.mime_type}: models read text alone]",
    mcp.ResourceLink: _link,
    mcp.EmbeddedResource: _embedded,
}
