"""Commands find the mesh that runs from their folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hedgerow_cli import connection_options, options, running
from hedgerow_cli.app import app
from hedgerow_cli.status import known_addresses
from hedgerow_cli.up_steps import file_steps, file_warnings, url_warnings
from launcher.meshfile.models import Model
from launcher.meshfile.schema import Gateway, MeshFile
from tests.listings import held, list_services

Runs = Callable[[Path, int], None]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HEDGEROW_TARGET", "HEDGEROW_TARGET_AUDIO"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def killed(folder: Path, port: int) -> None:
    """Leave the state of a killed mesh: cache on `port`, audio service on the next one, gateway on the one after.
    Another process has their process ids now: this one."""
    names = ("cache-1", "audio", "gateway")
    list_services(
        folder,
        [
            {"name": name, "address": f"127.0.0.1:{port + number}", "pid": os.getpid()}
            for number, name in enumerate(names)
        ],
    )


@pytest.fixture
def runs() -> Iterator[Runs]:
    """Makes a mesh run, with the ports of `killed`."""
    with ExitStack() as stack:

        def run(folder: Path, port: int) -> None:
            killed(folder, port)
            stack.enter_context(held(folder))

        yield run


def of_gateway(**fields: str) -> MeshFile:
    return MeshFile.model_construct(gateway=Gateway(**fields), models={}, tenants={})


def asked(*arguments: str) -> str:
    """The parsed options of a command, or its error."""
    app = typer.Typer()

    @app.command()
    def show(
        gateway: connection_options.Gateway = "127.0.0.1:50050",
        audio: connection_options.AudioService = "127.0.0.1:50056",
        state_dir: options.StateDir = Path(".hedgerow"),
    ) -> None:
        print(gateway, audio, state_dir)

    return CliRunner().invoke(app, arguments).output


@pytest.mark.parametrize("command", [["ask", "?"], ["tools"], ["warm"]])
def test_a_command_calls_the_gateway_that_runs_here(runs: Runs, command: list[str]) -> None:
    runs(Path(".hedgerow"), 1)
    assert "no gateway at 127.0.0.1:3;" in CliRunner().invoke(app, command).stderr


def test_the_state_of_a_mesh_file_lies_beside_it_under_its_name() -> None:
    assert running.state_of(None) == Path(".hedgerow")
    assert running.state_of(Path("shop/prod.yaml")) == Path("shop/.hedgerow/meshes/prod")


def test_files_beside_each_other_that_differ_in_their_endings_have_a_state_each() -> None:
    files = [Path(name) for name in ("mesh.yaml", "mesh.yml", "mesh.json", "mesh.yaml.bak", "mesh.prod.yaml")]
    assert len({running.state_of(file) for file in files}) == len(files)


def test_services_are_those_of_the_mesh_that_runs_here(runs: Runs) -> None:
    runs(Path(".hedgerow/meshes/prod"), 6000)
    assert asked().split() == ["127.0.0.1:6002", "127.0.0.1:6001", ".hedgerow/meshes/prod"]


def test_options_override_variables_and_the_running_mesh(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(Path(".hedgerow"), 6000)
    monkeypatch.setenv("HEDGEROW_TARGET_AUDIO", "10.0.0.7:1")
    assert asked("--gateway", "10.0.0.8:2").split() == ["10.0.0.8:2", "10.0.0.7:1", ".hedgerow"]


def test_a_mesh_that_was_killed_does_not_run(runs: Runs) -> None:
    killed(Path(".hedgerow"), 6000)
    runs(Path(".hedgerow/meshes/prod"), 7000)
    assert asked().split() == ["127.0.0.1:7002", "127.0.0.1:7001", ".hedgerow/meshes/prod"]


def test_with_two_meshes_one_must_be_named(runs: Runs) -> None:
    runs(Path(".hedgerow/meshes/a"), 6000)
    runs(Path(".hedgerow/meshes/b"), 7000)
    refused = " ".join(asked().split())
    assert "2 meshes run here, one is needed: .hedgerow/meshes/a, .hedgerow/meshes/b" in refused.replace(" │ │ ", " ")
    options = ("--gateway", "h:1", "--audio", "h:2", "--state-dir", ".hedgerow/meshes/b")
    assert asked(*options).split() == ["h:1", "h:2", ".hedgerow/meshes/b"]


@pytest.mark.parametrize(
    "listing",
    [
        None,
        "{",
        "[]",
        '{"services": "abc"}',
        '{"services": [1]}',
        '{"services": []}',
        '{"services": [{"pid": 1}]}',
        '{"services": [{"name": "gateway", "address": 6000}]}',
    ],
)
def test_the_defaults_hold_where_no_mesh_runs_or_its_listing_cannot_be_read(
    runs: Runs, here: Path, listing: str | None
) -> None:
    assert asked().split() == ["127.0.0.1:50050", "127.0.0.1:50056", ".hedgerow"]
    if listing is None:
        killed(Path(".hedgerow"), 6000)
    else:
        runs(here / ".hedgerow", 6000)
        (here / ".hedgerow" / running.RUNNING_FILE).write_text(listing)
    assert asked().split() == ["127.0.0.1:50050", "127.0.0.1:50056", ".hedgerow"]
    assert known_addresses(Path(".hedgerow"))["gateway"] == "127.0.0.1:50050"


@pytest.mark.parametrize(
    ("folders", "others"),
    [
        ([".hedgerow/meshes/prod"], ""),
        (["../shop/.hedgerow/meshes/prod"], " --state-dir ../shop/.hedgerow/meshes/prod"),
        ([".hedgerow/meshes/prod", ".hedgerow/meshes/test"], " --state-dir .hedgerow/meshes/prod"),
    ],
)
def test_up_names_the_mesh_where_commands_would_find_another_or_none(
    runs: Runs, here: Path, monkeypatch: pytest.MonkeyPatch, folders: list[str], others: str
) -> None:
    (here / "here").mkdir()
    monkeypatch.chdir(here / "here")
    for number, folder in enumerate(folders):
        runs(Path(folder), 6000 + 10 * number)
    steps = file_steps(Path("prod.yaml"), Path(folders[0]), of_gateway(address="127.0.0.1:50050"))
    assert f"hedgerow status{others}\n" in steps
    assert ("hedgerow ask --gateway 127.0.0.1:50050 " in steps) == bool(others)


def test_paths_with_blanks_are_quoted_in_what_up_says_to_try(runs: Runs) -> None:
    runs(Path("my shop/.hedgerow/meshes/prod"), 6000)
    gateway = of_gateway(address="127.0.0.1:50050")
    steps = file_steps(Path("my shop/prod.yaml"), Path("my shop/.hedgerow/meshes/prod"), gateway)
    assert "hedgerow status --state-dir 'my shop/.hedgerow/meshes/prod'\n" in steps


def test_clients_of_this_machine_are_given_an_address_that_they_can_connect_to(here: Path) -> None:
    steps = file_steps(Path("mesh.yaml"), here / ".hedgerow", of_gateway(address="0.0.0.0:50050", http="[::]:50080"))
    assert "hedgerow ask --gateway 127.0.0.1:50050 " in steps
    assert "base_url=http://[::1]:50080/v1\n" in steps


@pytest.mark.parametrize(
    ("address", "host", "warned"),
    [
        ("127.0.0.1:50050", "0.0.0.0", True),
        ("0.0.0.0:50050", "0.0.0.0", False),
        ("127.0.0.1:50050", "127.0.0.1", False),
    ],
)
def test_a_gateway_that_a_container_hides_is_warned_of(address: str, host: str, warned: bool) -> None:
    warnings = file_warnings(Path("/mesh.yaml"), of_gateway(address=address), host)
    wanted = 'gateway: {address: "0.0.0.0:50050", http: "0.0.0.0:50080", plaintext: true}'
    assert [warning.rpartition(" set ")[2] for warning in warnings] == [wanted] * warned


@pytest.mark.parametrize(
    ("url", "warned"), [("http://h:8000", True), ("http://h:8000/", True), ("http://h:8000/v1", False)]
)
def test_a_url_that_ends_before_the_path_of_an_api_is_warned_of(url: str, warned: bool) -> None:
    said = MeshFile.model_construct(models={"m": Model.model_construct(url=(url,))})
    assert len(url_warnings(said)) == warned
    assert all("are at http://h:8000/v1" in each for each in url_warnings(said))


@pytest.mark.parametrize("command", [("collection", "list"), ("cache", "stats")])
def test_a_mesh_without_a_cache_service_is_an_error(command: tuple[str, str], here: Path) -> None:
    list_services(here / ".hedgerow", [{"name": "gateway", "address": "127.0.0.1:7000", "pid": os.getpid()}])
    with held(here / ".hedgerow"):
        shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 1
    assert "has no cache service" in shown.stderr
