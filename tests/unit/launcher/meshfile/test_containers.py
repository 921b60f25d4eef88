"""A mesh file for containers: keys stay references, folders are mounted, loopback is pointed out."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launcher.meshfile import compose, helm
from launcher.meshfile.containers import VERSION, elsewhere
from tests.unit.launcher.meshfile.mesh_files import ENVIRONMENT, FULL, KEY, file_of


def test_in_compose_keys_are_references_and_folders_are_mounted(folder: Path) -> None:
    text = compose.render(file_of(FULL, folder), ENVIRONMENT, "registry.example/h")
    assert KEY not in text
    assert "a-callers-key" not in text
    services = yaml.safe_load(text)["services"]
    assert services["llm-remote"]["environment"]["HEDGEROW_LLM_OPENAI__API_KEY"] == "${PROVIDER_KEY:?}"
    assert services["gateway"]["environment"]["HEDGEROW_GATEWAY_REDIS_URL"] == "${REDIS:?}"
    assert services["gateway"]["image"] == f"registry.example/h/gateway:{VERSION}"
    (mount,) = services["llm-local-1"]["volumes"]
    assert mount["source"] == str(folder / "model")
    assert mount["target"] == services["llm-local-1"]["environment"]["HEDGEROW_LLM_VLLM__MODEL"] == "/models/model"


def test_in_compose_a_dollar_is_a_dollar(folder: Path) -> None:
    text = compose.render(file_of("models:\n  a: {hub: x/y, options: {revision: $A}}\n", folder), ENVIRONMENT)
    assert '"revision": "$$A"' in yaml.safe_load(text)["services"]["llm-a"]["environment"]["HEDGEROW_LLM_VLLM"]


def test_in_compose_a_dollar_in_a_path_is_a_dollar(folder: Path) -> None:
    model, tenants = folder / "of$HOME", folder / "who$.yaml"
    model.mkdir()
    tenants.write_text("{}")
    text = f"models: {{a: './{model.name}'}}\ntenants_file: './{tenants.name}'\n"
    rendered = yaml.safe_load(compose.render(file_of(text, folder), ENVIRONMENT))
    sources = [mount["source"] for mount in rendered["services"]["llm-a"]["volumes"]]
    assert [str(folder / "of$$HOME")] == sources
    assert rendered["configs"]["tenants"]["file"].endswith("/who$$.yaml")


def test_without_tenants_compose_admits_this_machine_alone(folder: Path) -> None:
    name, tenants = "HEDGEROW_GATEWAY_ALLOW_ANONYMOUS", "tenants: {t: {key_env: CALLER_KEY}}\n"
    out, http = "gateway: '0.0.0.0:50050'\n", "gateway: {http: '0.0.0.0:8080'}\n"
    for text, opened in (("", "true"), (out, None), (http, None), (tenants, None)):
        rendered = compose.render(file_of(f"models: {{a: x/y}}\n{text}", folder), ENVIRONMENT)
        assert yaml.safe_load(rendered)["services"]["gateway"]["environment"].get(name) == opened


def test_compose_publishes_ports_at_numbers_where_docker_takes_no_name(folder: Path) -> None:
    rendered = compose.render(file_of("models: {a: x/y}\ngateway: 'localhost:6000'\n", folder), ENVIRONMENT)
    assert yaml.safe_load(rendered)["services"]["gateway"]["ports"] == ["127.0.0.1:6000:50050", "127.0.0.1:6030:8080"]


@pytest.mark.parametrize(
    ("address", "named"), [("localhost:6000", 0), ("[::1]:6000", 0), ("0.0.0.0:6000", 0), ("mesh.example:6000", 1)]
)
def test_an_address_that_docker_does_not_publish_is_pointed_out(address: str, named: int, folder: Path) -> None:
    assert len(compose.unpublished(file_of(f"models: {{a: x/y}}\ngateway: '{address}'\n", folder))) == named


def test_a_model_of_a_services_name_hides_no_service(folder: Path) -> None:
    urls = ", ".join(f"{name}: {{url: 'http://10.0.0.8/v1'}}" for name in ("gateway", "cache"))
    (gateway,) = [each for each in helm.planned(file_of(f"models: {{{urls}}}", folder)) if each.part.name == "gateway"]
    assert gateway.environment["HEDGEROW_GATEWAY_CACHE_ADDRESS"] == "xds:///cache"
    assert "xds:///llm-cache" in gateway.environment["HEDGEROW_GATEWAY_LLM_ADDRESSES"]


def test_folders_of_one_name_are_different_folders_of_the_volume(folder: Path) -> None:
    models = {"one": "a/final", "two": "b/final", "three": "model"}
    for place in models.values():
        (folder / place).mkdir(parents=True, exist_ok=True)
    text = "models:\n" + "".join(f"  {name}: ./{place}\n" for name, place in models.items())
    values = yaml.safe_load(helm.render(file_of(text, folder), ENVIRONMENT))
    served = [model["settings"]["VLLM__MODEL"] for model in values["models"]]
    assert served == ["/models/llm-one", "/models/llm-two", "/models/model"]


@pytest.mark.parametrize("prose", ["http://host:PORT/v1", "http://host:99999", "http://[host"])
def test_prose_that_is_no_url_is_passed_over(prose: str, folder: Path) -> None:
    text = f"models: {{a: x/y}}\ngateway: {{settings: {{system_prompts: {{s: {{default: 'See {prose} there'}}}}}}}}\n"
    found = helm.planned(file := file_of(text, folder))
    assert elsewhere(found) == []
    assert prose in helm.render(file, ENVIRONMENT)


def test_addresses_of_this_machines_loopback_are_reported_for_containers(folder: Path) -> None:
    found = helm.planned(file_of("models: {a: 'http://127.0.0.1:8000/v1', b: 'http://h:1/v1'}\n", folder))
    assert elsewhere(found) == ["llm-a: HEDGEROW_LLM_OPENAI leads to 127.0.0.1, which is the container itself there"]


@pytest.mark.parametrize(
    ("model", "gateway", "stops", "shutdown"),
    [
        ("", "", ["10s", "10s"], None),
        ("", "grace_ms: 60000", ["10s", "65s"], {"graceSeconds": 70}),
        ("grace_ms: 600000", "grace_ms: 1500", ["605s", "7s"], {"graceSeconds": 600}),
        ("", "grace_ms: 30000, lame_duck_ms: 2500", ["10s", "35s"], {"graceSeconds": 30, "lameDuckSeconds": 3}),
    ],
)
def test_containers_are_killed_after_the_grace_of_their_services(
    model: str, gateway: str, stops: list[str], shutdown: object, folder: Path
) -> None:
    text = f"models: {{a: {{url: 'http://h/v1', settings: {{{model}}}}}}}\ngateway: {{settings: {{{gateway}}}}}\n"
    services = yaml.safe_load(compose.render(file := file_of(text, folder), ENVIRONMENT))["services"]
    assert [services[name]["stop_grace_period"] for name in ("llm-a", "gateway")] == stops
    values = yaml.safe_load(helm.render(file, ENVIRONMENT))
    assert values.get("shutdown") == shutdown
    for service in (values["gateway"], *values["models"]):
        assert not {"GRACE_MS", "LAME_DUCK_MS"} & service.get("settings", {}).keys()


@pytest.mark.parametrize(
    ("settings", "mebibytes"),
    [("", 2048), ("max_bytes: 1000000", 2048), ("MAX_BYTES: 4294967296", 5888), ("max_bytes: many", 2048)],
)
def test_a_cache_has_the_memory_for_its_entries(settings: str, mebibytes: int, folder: Path) -> None:
    file = file_of(f"models: {{a: 'http://h/v1'}}\ncache: {{settings: {{{settings}}}}}\n", folder)
    services = yaml.safe_load(compose.render(file, ENVIRONMENT))["services"]
    values = yaml.safe_load(helm.render(file, ENVIRONMENT))
    assert services["cache"]["mem_limit"] == f"{mebibytes}m"
    assert values["cache"]["resources"]["limits"] == {"memory": f"{mebibytes}Mi"}
