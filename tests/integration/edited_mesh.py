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

    def edit(self, *path: str, to: object) -> str:
        """Change what stands at `path`; the file's text before."""
        before = self.file.read_text()
        content = yaml.safe_load(before)
        section = content
        for step in path[:-1]:
            section = section[step]
        section[path[-1]] = to
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))
        return before

    def follows(self, done: str) -> None:
        """Return when it has said so."""
        line = f"{self.file} is in force: {done}"
        self.up.wait_for(line, self.up.lines.count(line) + 1)

    def pids(self) -> dict[str, int]:
        return {name: self.up.pid(name) for name in FIRST}
