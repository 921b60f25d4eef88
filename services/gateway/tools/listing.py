"""The tools that a source lists, checked: all that a model reads of them is bounded, and omitted tools are reported."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hedgerow.tool.v1 import tool_pb2
from services.gateway.admission import constraint
from services.gateway.settings.response_format import ConstraintSettings
from services.gateway.settings.tools import ToolSettings, ToolSourceSettings
from services.runtime import letters
from services.runtime.errors import InvalidInput, shorten
from services.runtime.limits import MESH_TOOL_NAME

_log = logging.getLogger(__name__)
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_INVISIBLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in letters.INVISIBLE)
_HIDDEN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
_MOST_NAMED = 3  # tools in a problem, by name


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as callers and models know it. `remote` is what its source calls it."""

    description: tool_pb2.ToolDescription
    source: str
    remote: str

    @property
    def name(self) -> str:
        return self.description.tool.name

    @property
    def path(self) -> str:
        """Its unique path: neither a source's name nor a tool's has a slash."""
        return f"{self.source}/{self.name}"


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of one source by name. `problem`: which ones are left out, for people."""

    tools: Mapping[str, ListedTool] = field(default_factory=dict)
    problem: str = ""


class Checker:
    """Checks the lists of one source, `name`."""

    def __init__(self, name: str, own: ToolSourceSettings, limits: ToolSettings, schemas: ConstraintSettings):
        self._name, self._own, self._limits, self._schemas = name, own, limits, schemas
        self._raw: list[bytes] | None = None
        self._last = Listing()

    def check(self, listed: Sequence[tool_pb2.ToolDescription]) -> Listing:
        """The tools that can be used. A list that has not changed is looked through once."""
        wanted = [each for each in listed if not self._own.tools or each.tool.name in self._own.tools]
        raw = [each.SerializeToString(deterministic=True) for each in wanted[: self._limits.max_tools]]
        if raw != self._raw:
            self._raw, self._last = raw, self._checked(wanted)
            if self._last.problem:
                _log.warning("tools of %s: %s", self._name, self._last.problem)
        return self._last

    def _checked(self, wanted: Sequence[tool_pb2.ToolDescription]) -> Listing:
        tools: dict[str, ListedTool] = {}
        left_out = []
        for each in wanted[: self._limits.max_tools]:
            try:
                tool = self._tool(each)
            except InvalidInput as error:
                left_out.append(f"{shorten(each.tool.name, 32)!r} ({error.message})")
                continue
            if tool.name in tools:
                left_out.append(f"{tool.name!r} (listed twice)")
            else:
                tools[tool.name] = tool
        problems = [f"left out: {_some(left_out)}"] if left_out else []
        if len(wanted) > self._limits.max_tools:
            problems.append(f"at most {self._limits.max_tools} tools, got {len(wanted)}")
        listed = {each.tool.name for each in wanted}
        if missing := [name for name in self._own.tools if name not in listed]:
            problems.append(f"not listed by the source: {_some(missing)}")
        return Listing(tools, "; ".join(problems))

    def _tool(self, listed: tool_pb2.ToolDescription) -> ListedTool:
        """A tool under the name that callers know, or `InvalidInput`."""
        name = self._own.prefix + _NOT_A_NAME.sub("_", listed.tool.name)
        if not MESH_TOOL_NAME.fullmatch(name):
            raise InvalidInput("name", "1 to 64 letters, digits, _ and -", f"{len(name)} characters")
        if listed.tool.parameters:
            constraint.check_schema("parameters", listed.tool.parameters, self._schemas)
        description = tool_pb2.ToolDescription()
        description.CopyFrom(listed)
        description.tool.name, description.reusable_ms = name, max(listed.reusable_ms, 0)
        description.tool.description = cut(
            _HIDDEN.sub(" ", listed.tool.description), self._limits.max_description_bytes
        )
        return ListedTool(description, self._name, listed.tool.name)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def cut(text: str, most_bytes: int) -> str:
    """The beginning of `text`, of at most `most_bytes`."""
    raw = text.encode()
    return text if len(raw) <= most_bytes else raw[:most_bytes].decode(errors="ignore")
