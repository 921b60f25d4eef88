"""Values that the Helm chart takes from the code agree with the code."""

from __future__ import annotations

from pathlib import Path

from scripts import helm_files
from tests.contract.chart import CHART


def test_the_charts_files_are_what_the_code_writes(tmp_path: Path) -> None:
    helm_files.write(tmp_path)
    written = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert len(written) == 7
    kept = {
        path.relative_to(CHART / "files"): path.read_text()
        for path in (CHART / "files").rglob("*.*")
        if path.is_file() and path.suffix != ".sh"
    }
    assert kept == written, "run `make docs`"
