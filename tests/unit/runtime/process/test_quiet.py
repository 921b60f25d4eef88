"""Engines' libraries are configured to send no usage statistics."""

from __future__ import annotations

from services.runtime.process.quiet import SILENT, silence


def test_nothing_reports_unless_its_own_variable_says_so() -> None:
    environ = {"ORT_DISABLE_TELEMETRY": "0", "DO_NOT_TRACK": ""}
    silence(environ)
    assert environ == {**SILENT, "ORT_DISABLE_TELEMETRY": "0"}
