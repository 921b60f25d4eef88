"""Names in the documents exist in the code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from docs.settings import settings, settings_classes, tables
from hedgerow.channel import PING_TIMEOUT_VARIABLE
from services.gateway.settings.tools import ToolSourceSettings

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
SOURCES = {path: path.read_text() for path in (REPOSITORY / "services").rglob("*.py")}
COMMANDS = [
    path for folder in ("hedgerow_cli", "launcher", "launcher/catalog") for path in (REPOSITORY / folder).glob("*.py")
]
_FOLDERS = (
    *("hedgerow", "hedgerow_cli", "launcher", "services", "protos"),
    *("tests", "bench", "docs", "scripts", "training"),
)
MODULES = {path.name for folder in _FOLDERS for path in (REPOSITORY / folder).rglob("*.py")}
METRICS, REPORTS, TRACING = [(REPOSITORY / f"docs/{page}.md").read_text() for page in ("metrics", "reports", "tracing")]

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())


def found(pattern: str, *, below: str = "") -> set[str]:
    """The matches of the pattern in the services' sources."""
    return {match for path, text in SOURCES.items() if below in path.as_posix() for match in re.findall(pattern, text)}


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


@each_document
def test_links_to_a_section_name_one(document: Path) -> None:
    for page, section in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", document.read_text()):
        target = document.parent / page if page else document
        if target.suffix == ".md":
            assert section in sections(target), f"{page}#{section}"


def sections(document: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    named = re.findall(r"(?:^|`)make ([a-z]+)", document.read_text(), flags=re.MULTILINE)
    assert set(named) <= targets


_SOURCE = "HEDGEROW_GATEWAY_TOOLS__SOURCES__TIME__"  # of the source that the page of tools has as its example


@cache
def variables() -> set[str]:
    """The names of settings that a document may use."""
    known = {setting.variable for cls in settings_classes() for setting in settings(cls)}
    known |= {setting.variable for _, rows in tables() for setting in rows}  # with `<SERVICE>` and `<PROVIDER>`
    known |= {name.partition("__")[0] for name in known}  # a group of settings, as JSON
    known |= {f"{_SOURCE}{field.upper()}" for field in ToolSourceSettings.model_fields}
    known |= {"HEDGEROW_<SERVICE>_CONFIG", PING_TIMEOUT_VARIABLE}
    return known | {name for path in COMMANDS for name in re.findall(r"\"(HEDGEROW_[A-Z0-9_]+)\"", path.read_text())}


@each_document
def test_variables_are_settings(document: Path) -> None:
    named = re.findall(r"HEDGEROW_[A-Z0-9<>_]+[A-Z0-9](?![A-Z0-9<>_])", document.read_text())
    assert set(named) <= variables()


@each_document
def test_files_named_in_code_style_exist(document: Path) -> None:
    folders = "hedgerow|launcher|services|protos|tests|bench|docs|deploy"
    for name in re.findall(rf"`((?:{folders})/[\w/.-]+)`", document.read_text()):
        assert (REPOSITORY / name).exists(), name


@each_document
def test_modules_that_are_named_exist(document: Path) -> None:
    if document.parent.name == "adr" or document.name == "CHANGELOG.md":  # records of the past
        return
    named = set(re.findall(r"(?<![\w/{,*])([a-z_]\w*\.py)\b", document.read_text()))
    written = set(re.findall(r"Save this as `(\w+\.py)`", document.read_text()))
    assert named <= MODULES | written


def test_every_metric_is_described() -> None:
    metrics = found(r"\"(hedgerow_[a-z_]*[a-z])\"")
    assert len(metrics) > 5
    assert {name for name in metrics if f"`{name}" not in METRICS} == set()


def test_every_reason_of_an_error_is_described() -> None:
    reasons = found(r"reason(?:: ClassVar\[str\])? = \"([A-Z_]+)\"")
    assert {reason for reason in reasons if f"`{reason}`" not in REPORTS} == set()


def test_every_label_of_a_degraded_answer_is_described() -> None:
    labels = found(r"\"((?:cache|router|llm|vision|audio):[a-z_]+)\"", below="gateway")
    assert labels
    assert {label for label in labels if f"`{label}`" not in REPORTS} == set()


def test_every_attribute_of_a_span_is_described() -> None:
    attributes = found(r"\"(hedgerow\.[a-z_]+(?:\.[a-z_]+)?)\"")
    assert {name for name in attributes if f"`{name}`" not in TRACING} == set()
