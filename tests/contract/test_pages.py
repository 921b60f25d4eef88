"""Commands on the pages exist, and each page is in the indexes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from hedgerow.chat.v1 import chat_pb2
from hedgerow_cli.app import app

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs").glob("*.md"))
DOCUMENTS = [REPOSITORY / "README.md", *PAGES]
PROMTOOL = shutil.which("promtool")
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def blocks(document: Path, language: str) -> list[str]:
    """The code of that language, without the indentation that a list gives it."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def commands(document: Path) -> Iterator[list[str]]:
    """The arguments of each `hedgerow …` of a block for a shell."""
    for block in blocks(document, "sh"):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            if found := re.match(r"(?:\S+=\S+ )*(?:\.venv/bin/|uvx --from '\S+' )?hedgerow (.*)", line.strip()):
                yield shlex.split(found[1].partition(" | ")[0].partition(" < ")[0], comments=True)


@each_document
def test_commands_and_their_options_exist(document: Path) -> None:
    for arguments in commands(document):
        command, rest = get_command(app), list(arguments)
        while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, arguments
            command = command.commands[rest.pop(0)]
        options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {word for word in rest if word.startswith("--")} <= {*options, "--help"}, arguments


@each_document
def test_python_compiles(document: Path) -> None:
    for block in blocks(document, "python"):
        compile(block, document.name, "exec")


def test_the_index_and_llms_txt_list_every_page() -> None:
    names = {page.name for page in PAGES} - {"index.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", (REPOSITORY / "docs/index.md").read_text())) == names
    listed = re.findall(r"\]\((\S+)\)", (REPOSITORY / "llms.txt").read_text())
    assert set(listed) == {f"docs/{page.name}" for page in PAGES}


def test_figures_of_the_readme_are_measured_ones() -> None:
    (why,) = re.findall(r"^## Why\n(.*?)^## ", (REPOSITORY / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    measured = "".join((REPOSITORY / f"docs/{page}.md").read_text() for page in ("benchmarks", "faults"))
    figures = re.findall(r"\d[\d,.]*\d", re.sub(r"\(\S+\)", "", why))
    assert len(figures) > 8
    assert [figure for figure in figures if figure not in measured] == []


def test_words_of_the_glossary_are_few_and_in_order() -> None:
    words = re.findall(r"^- ([a-z][\w ]*): ", (REPOSITORY / "docs/glossary.md").read_text(), flags=re.MULTILINE)
    assert 10 < len(words) <= 40
    assert words == sorted(words)


RULES = REPOSITORY / "deploy/prometheus/rules.yaml"


def test_alerts_are_about_metrics_that_exist() -> None:
    metrics = (REPOSITORY / "docs/metrics.md").read_text()
    alerts = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert len(alerts) > 4
    for alert in alerts:
        for name, labels in re.findall(r"(hedgerow_\w+)(?:\{(\w+)=)?", alert["expr"]):
            name = re.sub("_(bucket|count)$", "", name)
            (known,) = re.findall(rf"^- .*`{name}(?:\{{([\w,]+)\}})?`", metrics, flags=re.MULTILINE)
            assert not labels or labels in known.split(",")


def test_an_alert_says_how_urgent_it_is_and_the_runbook_what_to_look_at_first() -> None:
    alerts = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert {alert["labels"]["severity"] for alert in alerts} == {"page", "ticket"}
    page = (REPOSITORY / "docs/operations.md").read_text()
    (runbook,) = re.findall(r"^### Alerts\n(.*?)^##", page, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^- `(\w+)`: ", runbook, flags=re.MULTILINE) == [alert["alert"] for alert in alerts]


def test_the_values_of_labels_that_alerts_name_exist() -> None:
    reports, metrics = ((REPOSITORY / f"docs/{page}.md").read_text() for page in ("reports", "metrics"))
    named = "".join(alert["expr"] for alert in yaml.safe_load(RULES.read_text())["groups"][0]["rules"])

    def patterns(label: str) -> list[str]:
        """The alternatives of the first matcher of a label."""
        found = re.search(rf'{label}[=!]~?"([^"]+)"', named)
        assert found, label
        return re.split(r"\|(?![^(]*\))", found[1])

    for label, page in (("errors_total{reason", reports), ("degraded_total{reason", reports), ("kind", metrics)):
        words = re.findall(r"`([A-Z_]+|[a-z]+(?::[a-z]+)?)`", page)
        for pattern in patterns(label):
            assert any(re.fullmatch(pattern, word) for word in words), pattern
    assert patterns("finish_reason") == ["budget"]
    assert chat_pb2.FinishReason.Value("FINISH_REASON_BUDGET") == chat_pb2.FINISH_REASON_BUDGET


@pytest.mark.skipif(not PROMTOOL, reason="no promtool")
def test_prometheus_takes_the_alerts() -> None:
    done = subprocess.run([str(PROMTOOL), "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
