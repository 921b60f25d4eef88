"""A running `hedgerow up mesh.yaml` whose file is edited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.integration.running_up import Up

FIRST = ("cache", "router", "llm-quick", "llm-good", "gateway")


@dataclass
class Edited:
    """A running mesh and its file."""

    up: Up
    file: Path
    shared: bool  # whether the services share a process
    _since: int = 0  # how many lines there were before the last change

    def write(self, text: str) -> None:
        """Replace all of the file."""
        self._since = len(self.up.lines)
        self.file.write_text(text)

    def edit(self, *path: str, to: object) -> str:
        """Change what stands at `path`; the file's text before."""
        before = self.file.read_text()
        content = yaml.safe_load(before)
        section = content
        for step in path[:-1]:
            section = section[step]
        section[path[-1]] = to
        self.write(yaml.safe_dump(content, sort_keys=False))
        return before

    def follows(self, done: str) -> None:
        """Return when it has said so since the last change."""
        self.up.wait_for(f"{self.file} is in force: {done}", since=self._since)

    def pids(self) -> dict[str, int]:
        return {name: self.up.pid(name) for name in FIRST}
