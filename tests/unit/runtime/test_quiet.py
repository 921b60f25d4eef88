"""Engines' libraries are told to keep to themselves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from services.runtime.process.quiet import SILENT, silence


def test_nothing_reports_unless_its_own_variable_says_so() -> None:
    environ = {"ORT_DISABLE_TELEMETRY": "0", "DO_NOT_TRACK": ""}
    silence(environ)
    assert environ == {**SILENT, "ORT_DISABLE_TELEMETRY": "0"}


@pytest.mark.parametrize("module", ["services.vision.config", "services.audio.errors", "services.runtime.probe"])
def test_it_is_said_before_anything_of_ours_is_imported(module: str) -> None:
    said = "import os, sys; print(*(os.environ.get(name) for name in sys.argv[1:]))"
    environ = {name: value for name, value in os.environ.items() if name not in SILENT}
    command = [sys.executable, "-c", f"import {module}; {said}", *SILENT]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(SILENT.values())
