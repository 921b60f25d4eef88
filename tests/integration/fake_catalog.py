"""A catalogue of two tiny models, an index that serves their wheels, and the commands on them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Self

from tests import forked

REPOSITORY, REVISION = "owner/halves", "a" * 40
CONTENT = {"one": b"first half, " * 1000, "two": b"second half" * 1000}
_COMMAND = "tests.integration.catalog_command"


class Catalog:
    """The files of a catalogue in a folder, and the commands in an environment of their own."""

    def __init__(self, folder: Path):
        self.folder, self.file, self.index = folder, folder / "catalog.toml", folder / "index"
        self.cache = folder / "cache"
        self.index.mkdir()
        for name in CONTENT:
            write_wheel(self.index, name)
        self.file.write_text("".join(_package(name) for name in CONTENT) + _MODELS)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "HEDGEROW_", "HF_"))},
            "HEDGEROW_MODELS_CACHE": str(self.cache),
            "HF_HUB_OFFLINE": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """`hedgerow models …`, under way."""
        command = [sys.executable, "-u", "-m", _COMMAND, str(self.file), "models", *arguments]
        given = {**self.environment, **environment}
        return subprocess.Popen(
            command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *arguments: str, **environment: str) -> forked.Ended:
        """`hedgerow models …`, from its start to its end."""
        given = {**self.environment, **environment}
        return forked.run_blocking(_COMMAND, str(self.file), "models", *arguments, environment=given)

    def pull(self, name: str) -> None:
        """Pull a model, which must succeed."""
        done = self.run("pull", name)
        assert done.code == 0, f"exit code {done.code}\n{done.out}\n{done.err}"

    def left(self) -> list[str]:
        """Everything in the cache folder, but for the lock."""
        found = (str(path.relative_to(self.cache)) for path in self.cache.rglob("*") if path.is_file())
        return sorted(name for name in found if name != ".partial/lock")


class _Server:
    """An HTTP server on loopback."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    @contextmanager
    def serving(self) -> Iterator[Self]:
        """While inside."""
        thread = Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.release()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def release(self) -> None:
        """Let answers go that are held back."""


class SlowIndex(_Server):
    """An index over HTTP that holds each wheel back after its first half, until `go` is set."""

    def __init__(self, folder: Path):
        self.reached, self.go, self.served = Event(), Event(), 0
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = folder / Path(self.path).name
                content = path.read_bytes() if path.suffix == ".whl" else _page(folder, self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/html" if path.suffix != ".whl" else "application/zip")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if path.suffix == ".whl":
                    index.served += 1
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    index.reached.set()
                    index.go.wait(60)
                    content = content[len(content) // 2 :]
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(Handler)

    @property
    def environment(self) -> dict[str, str]:
        """The environment that makes pip use this index."""
        url = f"http://127.0.0.1:{self._server.server_port}/simple/"
        return {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": url, "NO_PROXY": "127.0.0.1"}

    def release(self) -> None:
        self.go.set()


class FakeHub(_Server):
    """A model hub over HTTP, with the one repository `owner/halves`; `content` by the file's name."""

    def __init__(self) -> None:
        self.content = {f"model.bin.part{number}": content for number, content in enumerate(CONTENT.values(), 1)}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self.wfile.write(self._answer())

            def _answer(self) -> bytes:
                name = Path(self.path).name
                known = self.path == f"/{REPOSITORY}/resolve/{REVISION}/{name}" and name in hub.content
                content = hub.content[name] if known else b"[]"
                self.send_response(200 if known or self.path.startswith("/api/models") else 404)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
                self.send_header("X-Repo-Commit", REVISION)
                self.end_headers()
                return content

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(Handler)

    @property
    def environment(self) -> dict[str, str]:
        """The environment that makes the hub's client use this server."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}


def wheel_name(name: str) -> str:
    """The name of the wheel of one of the two packages."""
    return f"fake_{name}-1.0-py3-none-any.whl"


def write_wheel(folder: Path, name: str) -> None:
    """A wheel that pip accepts, with one file of a model in it."""
    about = f"fake_{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / wheel_name(name), "w") as wheel:
        wheel.writestr(f"fake_{name}/model.bin", CONTENT[name])
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: fake-{name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def _page(folder: Path, path: str) -> bytes:
    name = path.strip("/").rpartition("/")[2].replace("-", "_")
    links = [f'<a href="/{wheel.name}">{wheel.name}</a>' for wheel in folder.glob(f"{name}-*.whl")]
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def _package(name: str) -> str:
    part = {"one": "model.bin.part1", "two": "model.bin.part2"}[name]
    return f"""
[packages.fake-{name}]
version = "1.0"
wheel = "{wheel_name(name)}"
bytes = 1000
[packages.fake-{name}.files."{part}"]
path = "fake_{name}/model.bin"
sha256 = "{hashlib.sha256(CONTENT[name]).hexdigest()}"
"""


_MODELS = f"""
[models.tiny]
kind = "llm"
about = "Two halves."
licence = "MIT"
origin = "https://model.example"
version = 1
bytes = 23000
[[models.tiny.sources]]
packages = ["fake-one", "fake-two"]
recipe = "whisper"
[models.tiny.sources.made]
"model.bin" = "{hashlib.sha256(CONTENT["one"] + CONTENT["two"]).hexdigest()}"

[models.twofold]
kind = "llm"
about = "The hub's, else the index's."
licence = "MIT"
origin = "https://model.example"
version = 1
bytes = 23000
[[models.twofold.sources]]
hub = "{REPOSITORY}"
revision = "{REVISION}"
recipe = "whisper"
bytes = 23000
[models.twofold.sources.files]
"model.bin.part1" = "{hashlib.sha256(CONTENT["one"]).hexdigest()}"
"model.bin.part2" = "{hashlib.sha256(CONTENT["two"]).hexdigest()}"
[[models.twofold.sources]]
packages = ["fake-one", "fake-two"]
recipe = "whisper"

[models.half]
kind = "audio"
about = "The first half alone."
licence = "MIT"
origin = "https://model.example"
version = 1
bytes = 12000
[[models.half.sources]]
packages = ["fake-one"]
recipe = "copy"
"""
