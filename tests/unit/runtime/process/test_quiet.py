"""Engines' libraries are configured to send no usage statistics."""

from __future__ import annotations

from services.runtime.process.quiet import SILENT, silence


def test_telemetry_of_libraries_is_off_unless_its_variable_is_set() -> None:
    environ = {"ORT_DISABLE_TELEMETRY": "0", "DO_NOT_TRACK": ""}
    silence(environ)
    assert environ == {**SILENT, "ORT_DISABLE_TELEMETRY": "0"}
