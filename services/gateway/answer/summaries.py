"""Summaries of the turns that do not fit a model's context: made beside an answer for the next question, and kept under
a checksum of these turns.

A summary is optional: a background call, a few at once, charged to the tenant that caused it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.answer.background_call import ask
from services.gateway.generation.shared import Shared
from services.gateway.prompt import window
from services.gateway.settings.prompt import PromptSettings
from services.gateway.upstream.router import Routes
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_lru import FairLru
from services.runtime.policy.fair_slots import leaves_room

_log = logging.getLogger(__name__)
_AT_ONCE = 4  # of all tenants; one alone has half
_KEPT_BYTES = 1 << 22
_OVERHEAD_BYTES = 300  # of a summary beside its text
_PROMPT_BYTES = 4_096  # of the turns, the newest first: a small model gains nothing from more
_ORDER = "Summarize this conversation in at most five short sentences. Keep names, numbers and decisions."
_NAMES = {chat_pb2.ROLE_USER: "User", chat_pb2.ROLE_ASSISTANT: "Assistant", chat_pb2.ROLE_TOOL: "Tool"}
NOTE = "Earlier in this conversation: "


@dataclass(frozen=True, slots=True)
class _Summary:
    text: str
    tenant: str

    @property
    def size(self) -> int:
        return sys.getsizeof(self.text) + _OVERHEAD_BYTES


class Summaries:
    """Finds summaries with `find`, and makes missing ones with `order`."""

    def __init__(self, settings: PromptSettings, models: Shared, routes: Routes):
        self._settings, self._models, self._routes = settings, models, routes
        self._kept: FairLru[tuple[str, bytes], _Summary] = FairLru(_KEPT_BYTES)
        self._making: dict[tuple[str, bytes], asyncio.Task[None]] = {}

    def find(self, tenant: Tenant, turns: Sequence[window.Messages]) -> str:
        """The summary of these turns; empty where there is none yet."""
        place = tenant.name, _checksum(tenant, turns)
        if (found := self._kept.get(place)) is None:
            return ""
        self._kept.use(place)
        return found.text

    def order(self, tenant: Tenant, turns: Sequence[window.Messages]) -> int:
        """Start a summary. Returns the most tokens that it will cost; 0 where none is started."""
        place = tenant.name, _checksum(tenant, turns)
        if place in self._making or not leaves_room([name for name, _ in self._making], tenant.name, _AT_ONCE):
            return 0
        messages = _asked(turns)
        self._making[place] = task = asyncio.create_task(self._make(tenant, place, messages))
        task.add_done_callback(lambda _: self._making.pop(place, None))
        return window.estimated_tokens(messages) + self._settings.summary_tokens

    async def close(self) -> None:
        """Cancel the summaries under way."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)

    async def _make(self, tenant: Tenant, place: tuple[str, bytes], messages: window.Messages) -> None:
        settings = self._settings
        try:
            text = await ask(
                self._models,
                self._routes,
                tenant,
                settings.summary_model,
                messages,
                max_tokens=settings.summary_tokens,
                within_s=settings.summary_ms / 1000,
            )
        except ServiceError as error:
            _log.info("no summary: %s", error.outline)
            return
        if text.strip():
            self._kept.replace(place, _Summary(text.strip(), tenant.name))


def _asked(turns: Sequence[window.Messages]) -> window.Messages:
    lines, left = list[str](), 2 * _PROMPT_BYTES  # characters to look at: turns may have 16 MiB
    for message in (message for turn in reversed(turns) for message in reversed(turn) if message.content):
        lines.append(f"{_NAMES.get(message.role, 'System')}: {message.content}"[-left:])
        if (left := left - len(lines[-1])) <= 0:
            break
    said = "\n".join(reversed(lines))
    prompt = window.shortened(said, _PROMPT_BYTES) or said[-_PROMPT_BYTES // 4 :]
    return (
        chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=_ORDER),
        chat_pb2.Message(role=chat_pb2.ROLE_USER, content=prompt),
    )


def _checksum(tenant: Tenant, turns: Sequence[window.Messages]) -> bytes:
    """The key of a summary: the turns, and their tenant."""
    digest = hashlib.sha256(tenant.prefix_salt.encode())
    for turn in turns:
        for message in turn:
            serialized = message.SerializeToString(deterministic=True)
            digest.update(len(serialized).to_bytes(8, "big") + serialized)
    return digest.digest()
