"""Behaviour that only a fresh process can show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from services.runtime.process.quiet import SILENT


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError(secret)",
        "import threading; t = threading.Thread(target=lambda: int(secret)); t.start(); t.join()",
        "a = type('A', (), {'__del__': lambda self: int(secret)})(); del a",
    ],
)
def test_errors_that_end_a_process_or_a_thread_are_logged_alike(end: str) -> None:
    code = (
        "from services.runtime.process.logs import *\n"
        "setup_logging('service', 'INFO'); log_what_ends_us()\n"
        f"secret = 'hunter' + '2'\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "CRITICAL service services [-] uncaught exception" in done.stderr
    assert "ValueError" in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize("module", ["services.vision.config", "services.audio.errors", "services.runtime.probe"])
def test_telemetry_of_libraries_is_switched_off_before_any_import(module: str) -> None:
    said = "import os, sys; print(*(os.environ.get(name) for name in sys.argv[1:]))"
    environ = {name: value for name, value in os.environ.items() if name not in SILENT}
    command = [sys.executable, "-c", f"import {module}; {said}", *SILENT]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(SILENT.values())


def test_help_loads_nothing_that_takes_long() -> None:
    probe = (
        "import sys; from typer.testing import CliRunner; from hedgerow_cli.app import app; "
        "CliRunner().invoke(app, ['--help']); "
        "sys.exit(bool({'grpc', 'rich', 'google.protobuf', 'numpy', 'soundfile'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
