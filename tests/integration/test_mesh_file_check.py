"""`hedgerow check` and `render`: what the services' own code says of a mesh file, before anything starts."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from launcher.mesh import MeshError
from launcher.meshfile import preflight
from launcher.meshfile.planning import plan
from launcher.meshfile.template import InitAnswers, usual_key, write
from tests.integration.command import launch, run
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs/mesh-file.md"
WRONG = """\
models:
  remote:
    url: http://127.0.0.1:1/v1
    options:
      http_version: 3
      colour: blue
  local:
    hub: a/b
    options: {max_num_seqs: 0}
    settings: {grace: 1}
cache: {settings: {similarity_threshold: 2}}
gateway: {settings: {hedge: {mode: "often", max_shares: 1}}}
"""


async def test_a_value_that_a_service_would_refuse_is_reported_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(WRONG)
    code, out, _ = await run("check", str(file), "--json")
    assert code == 2
    problems = {each["path"]: (each["line"], each["column"], each["message"]) for each in json.loads(out)["problems"]}
    assert problems == {
        "models.remote.options.http_version": (5, 21, "it must be '1.1' or '2', got 3"),
        "models.remote.options.colour": (6, 15, "no such setting"),
        "models.local.settings.grace": (10, 23, problems["models.local.settings.grace"][2]),
        "cache.settings.similarity_threshold": (11, 42, "it must be less than or equal to 1, got '2'"),
        "gateway.settings.hedge.max_shares": (12, 57, "no such setting; did you mean max_share?"),
        "gateway.settings.hedge.mode": (12, 36, problems["gateway.settings.hedge.mode"][2]),
    }
    assert "did you mean grace_ms?" in problems["models.local.settings.grace"][2]
    assert problems["gateway.settings.hedge.mode"][2].endswith("got 'often'")


async def test_a_name_that_is_a_digit_of_no_number_and_an_address_without_a_port_are_reported_at_their_lines(
    tmp_path: Path,
) -> None:
    (file := tmp_path / "mesh.yaml").write_text(
        "models: {m: {url: http://127.0.0.1:1/v1, options: {²: 1}}}\ngateway: {settings: {metrics_address: nowhere}}\n"
    )
    code, out, _ = await run("check", str(file), "--json")
    problems = {each["path"]: (each["line"], each["message"]) for each in json.loads(out)["problems"]}
    assert (code, problems) == (
        2,
        {
            "models.m.options.²": (1, "no such setting"),
            "gateway.settings.metrics_address": (2, "host:port, with a port from 0 to 65535, got 'nowhere'"),
        },
    )


async def test_a_tenants_value_that_the_gateway_would_refuse_is_reported_at_its_line(tmp_path: Path) -> None:
    (file := tmp_path / "mesh.yaml").write_text(
        "models: {m: {url: http://127.0.0.1:1/v1}}\n"
        "tenants:\n"
        "  acme: {key_env: ACME_KEY}\n"
        "  support: {key_env: SUPPORT_KEY, hits: {others: semantic}}\n"
    )
    code, out, _ = await run("check", str(file), "--json", ACME_KEY="not-shown", SUPPORT_KEY="not-shown-2")
    (problem,) = json.loads(out)["problems"]
    assert (code, problem["path"], problem["line"]) == (2, "tenants.support.hits.others", 4)
    assert problem["message"].endswith("got 'semantic'")
    assert "not-shown" not in out


async def test_expired_keys_are_named(tmp_path: Path) -> None:
    old, new = "a1" * 32, "b2" * 32
    (file := tmp_path / "mesh.yaml").write_text(
        "models: {m: {url: http://127.0.0.1:1/v1}}\n"
        f"tenants: {{acme: {{key_sha256: [{{sha256: {old}, expires: 2020-01-31}}, "
        f"{{sha256: {new}, expires: 2099-01-31}}]}}}}\n"
    )
    code, out, _ = await run("check", str(file))
    assert code == 0
    assert out.splitlines()[-2].split(maxsplit=1) == [
        "acme",
        f"warning: API key {old[:12]} expired at 2020-01-31T00:00:00Z",
    ]
    _, out, _ = await run("check", str(file), "--json")
    expired = [{"tenant": "acme", "id": old[:12], "expires": "2020-01-31T00:00:00Z"}]
    assert json.loads(out)["expired_keys"] == expired


@pytest.mark.parametrize(
    ("content", "problem"), [("][", "not valid YAML"), ("' a': {}", "a tenant's name has"), ("7", "are needed")]
)
async def test_a_file_of_tenants_that_the_gateway_refuses_is_reported(
    content: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "who.yaml").write_text(content)
    (file := tmp_path / "mesh.yaml").write_text("models: {m: {url: http://127.0.0.1:1/v1}}\ntenants_file: who.yaml\n")
    code, _, err = await run("check", str(file))
    assert code == 2
    assert err.startswith(f"{file}:2:15: tenants_file: ")
    assert problem in err


@pytest.mark.parametrize("model", ["a/b", "openai:model", "anthropic:model", "openrouter:model"])
async def test_the_file_of_init_can_be_used(model: str, tmp_path: Path) -> None:
    file = tmp_path / "my mesh.yaml"
    answers = InitAnswers(model, usual_key(model), "keys")
    file.write_text(write(answers))
    code, out, err = await run("check", str(file), **dict.fromkeys(answers.needed, "a-key"))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"{file} can be used: hedgerow up '{file}'"


async def test_the_pages_examples_are_settings_that_the_services_take(tmp_path: Path) -> None:
    for text in re.findall(r"```yaml\n(models:.*?)```", PAGE.read_text(), re.DOTALL):
        for folder in re.findall(r"\./(\S+)", text):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "secrets").mkdir(exist_ok=True)
        (tmp_path / "secrets" / "anthropic").write_text("a-key")
        (tmp_path / "mesh.yaml").write_text(text)
        keys = dict.fromkeys(("OPENAI_API_KEY", "ACME_KEY"), "a-key")
        code, _, err = await run("check", str(tmp_path / "mesh.yaml"), **keys, BATCH_KEY="another")
        assert (code, err) == (0, "")


async def test_errors_of_the_file_and_of_services_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    text = WRONG.replace("    options:\n", "    tier: best\n    options:\n").replace(
        "gateway: {", "gateway: {address: '0.0.0.0:50050', plaintext: true, "
    )
    file.write_text(f"{text}tenants: {{acme: {{key_env: NOT_SET}}}}\n")
    code, _, err = await run("check", str(file))
    assert code == 2  # and nothing of the gateway, which would want a tenant
    assert [line.partition(": ")[2].partition(":")[0] for line in err.splitlines()] == [
        "models.remote.tier",
        "models.remote.options.http_version",
        "models.remote.options.colour",
        "models.local.settings.grace",
        "cache.settings.similarity_threshold",
        "gateway.settings.hedge.mode",
        "gateway.settings.hedge.max_shares",
        "tenants.acme.key_env",
    ]


async def test_render_checks_the_file_and_needs_no_providers_key(tmp_path: Path) -> None:
    file, out = tmp_path / "mesh.yaml", tmp_path / "out.yaml"
    file.write_text(write(InitAnswers("openai:gpt", "OPENAI_API_KEY", "keys")))
    code, _, err = await run("render", "helm", str(file), "-o", str(out), HEDGEROW_API_KEY="a-key", OPENAI_API_KEY="")
    assert (code, err) == (0, "")
    assert [each["name"] for each in yaml.safe_load(out.read_text())["models"]] == ["gpt"]
    file.write_text(WRONG)
    code, printed, err = await run("render", "compose", str(file))
    assert (code, printed) == (2, "")
    assert f"{file}:5:21: models.remote.options.http_version: " in err


async def test_rendering_for_a_cluster_requires_a_tenant_key_or_allow_anonymous(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("models: {a: a/b}\n")
    code, _, err = await run("render", "helm", str(file))
    assert code == 2
    keys, everybody = "tenants: {me: {key_env: HEDGEROW_API_KEY}}", "allow_anonymous: true"
    assert f'Write "{keys}" and set that variable; or, to admit every caller, "{everybody}" below "gateway:"' in err
    for line in (keys, f"gateway:\n  {everybody}"):
        file.write_text(f"models: {{a: a/b}}\n{line}\n")
        assert (await run("render", "helm", str(file), HEDGEROW_API_KEY="a-key"))[0] == 0


async def test_one_process_checks_all_services_shows_no_key_and_ends_with_a_cancelled_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "hunter2")
    file = tmp_path / "mesh.yaml"
    file.write_text("models: {a: {url: 'http://127.0.0.1:1/v1', key_env: A_KEY}, b: x/y}\n")
    before = set(psutil.Process().children())
    checking = asyncio.create_task(plan(file, tmp_path))
    (asked,) = await until(lambda: set(psutil.Process().children()) - before)
    assert "hunter2" not in str(asked.cmdline())
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert not asked.is_running()


async def test_a_file_with_a_crashed_check_is_not_reported_as_usable(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("models: {a: 'http://127.0.0.1:1/v1'}\n")
    checking = await launch("check", str(file), "--json")
    (asked,) = await until(lambda: psutil.Process(checking.pid).children(), within_s=60)
    asked.send_signal(signal.SIGKILL)
    out, _ = await checking.communicate()
    assert checking.returncode == 1
    error = json.loads(out)["error"]
    assert error["reason"] == "NOT_CHECKED"
    assert "the settings of the services could not be checked: their check was ended by SIGKILL" in error["message"]


async def test_settings_are_not_checked_where_no_service_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("models: {a: {url: 'http://127.0.0.1:1/v1', settings: {grace: 1}}}\n")
    monkeypatch.setattr(preflight, "_CHECK", ("false",))
    with pytest.raises(MeshError, match="their check ended with exit code 1; to see why"):
        await plan(file, tmp_path)
    monkeypatch.setattr(preflight, "_READS_SETTINGS", "no_such_package")
    assert (await plan(file, tmp_path)).specs
