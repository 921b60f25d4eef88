"""Product and workshop apart, also where import-linter cannot look: names of modules in strings, imports at run time.

The contracts in `pyproject.toml` check import statements.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SDK = sorted((REPOSITORY / "hedgerow").rglob("*.py"))
SERVICES = sorted((REPOSITORY / "services").rglob("*.py"))
# Whole, or as the beginning of an f-string.
LAUNCHER = re.compile(r"(python -m )?(launcher|hedgerow_cli)(\.\w+)*\.?")
SERVICE = re.compile(r"(python -m )?services\.(\w+\.?)*")


def strings(path: Path) -> Iterator[str]:
    """Every string of a module, also the pieces of f-strings: possible arguments of `import_module` or `python -m`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def naming(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [f"{path}: {text}" for path in paths for text in strings(path) if pattern.fullmatch(text.strip())]


def test_no_string_of_the_sdk_names_the_launcher_or_a_service() -> None:
    assert naming(LAUNCHER, SDK) + naming(SERVICE, SDK) == []


def test_no_string_of_a_service_names_the_launcher() -> None:
    assert naming(LAUNCHER, SERVICES) == []


def test_a_name_in_a_string_is_found(tmp_path: Path) -> None:
    sly = tmp_path / "sly.py"
    sly.write_text("""import_module("launcher.mesh"); import_module(f"launcher.{name}"); run("hedgerow_cli")""")
    assert len(naming(LAUNCHER, [sly])) == 3
    sly.write_text("""import_module(f"services.{name}"); import_module("services.llm")""")
    assert len(naming(SERVICE, [sly])) == 2


def test_the_commands_load_no_launcher_before_they_run() -> None:
    probe = "import sys, hedgerow_cli.app; sys.exit(any(name.startswith('launcher') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@pytest.mark.parametrize(
    ("command", "extra"),
    [("up", "proxy"), ("up --mesh", "demo"), ("demo", "demo"), ("certs --dir x", "launcher"), ("status", "launcher")],
)
def test_without_the_launcher_a_command_that_needs_it_says_what_to_install(command: str, extra: str) -> None:
    probe = "import sys; sys.modules['launcher'] = None; from hedgerow_cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", probe, *command.split()], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"hedgerow: launcher is not installed; install it with: pip install 'hedgerow[{extra}]'"
    ]


def product_modules() -> list[Path]:
    folders = ("services", "hedgerow", "hedgerow_cli", "launcher", "bench", "protos", "docs", "scripts", "training")
    return [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py") if "_pb2" not in path.name]


def test_a_module_fits_in_the_head() -> None:
    """At most 300 lines."""
    modules = product_modules()
    long = [str(path.relative_to(REPOSITORY)) for path in modules if len(path.read_text().splitlines()) > 300]
    assert not long


def test_files_of_text_name_their_encoding() -> None:
    """A locale has another one, and a service may run in any."""
    least = {"read_text": 1, "write_text": 2}  # arguments
    for path in product_modules():
        if path.relative_to(REPOSITORY).parts[0] in ("services", "hedgerow", "hedgerow_cli", "launcher"):
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            bare = [
                call.lineno
                for call in calls
                if isinstance(call.func, ast.Attribute)
                and len(call.args) + len(call.keywords) < least.get(call.func.attr, 0)
            ]
            assert not bare, path


def test_values_of_a_class_are_named_where_there_are_many() -> None:
    """A value among eight by position is another one's as soon as a field is added before it."""
    unnamed = [
        f"{path.relative_to(REPOSITORY)}:{call.lineno}: {call.func.id}"
        for path in product_modules()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.lstrip("_")[:1].isupper()
        if len(call.args) > 7 and not any(isinstance(each, ast.Starred) for each in call.args)
    ]
    assert not unnamed


def test_unit_tests_have_the_folders_of_the_code() -> None:
    roots = {"bench": "bench", "cli": "hedgerow_cli", "launcher": "launcher", "sdk": "hedgerow"}
    units = REPOSITORY / "tests/unit"
    folders = {path.parent.relative_to(units) for path in units.rglob("test_*.py")} - {Path(), Path("linear")}
    source = {
        folder: Path(roots.get(folder.parts[0], f"services/{folder.parts[0]}"), *folder.parts[1:]) for folder in folders
    }
    assert [str(folder) for folder, code in source.items() if not (REPOSITORY / code).is_dir()] == []
