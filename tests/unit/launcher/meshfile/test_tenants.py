"""Permissions and words of tenants in a mesh file, as the gateway's own settings take them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from hedgerow.chat.v1 import chat_pb2
from launcher.mesh import MeshError
from launcher.meshfile.fields import Surroundings
from launcher.meshfile.parts import tenants_of
from launcher.meshfile.planning import planned
from launcher.meshfile.reading import parse
from services.gateway.admission.provider_fields import check
from services.gateway.errors import FieldDenied
from services.gateway.settings.generation import HedgeSettings
from services.gateway.settings.prompt import PromptSettings
from services.gateway.settings.tenants import TenantSettings
from tests.unit.launcher.meshfile.mesh_files import ENVIRONMENT, file_of

SMALLEST = "models: {gpt: {url: https://api.example/v1}}\n"


@pytest.mark.parametrize("key", ["provider", "tools"])
def test_a_list_of_a_tenant_may_be_one_text(key: str, tmp_path: Path) -> None:
    value = {"provider": "n", "tools": "collections/search_*"}[key]
    for written in (value, f"[{value}]", f"['{value}']", f"\n      - {value}"):
        text = f"{SMALLEST}tenants:\n  acme:\n    key_env: CALLER_KEY\n    {key}: {written}\n"
        assert getattr(file_of(text, tmp_path).tenants["acme"], key) == [value]


@pytest.mark.parametrize("field", ["n", "store", "web_search_options"])
def test_the_advice_of_a_refused_request_is_a_line_for_a_mesh_file(field: str, tmp_path: Path) -> None:
    original = chat_pb2.Original(untranslated={field: "3"})
    with pytest.raises(FieldDenied) as denied:
        check(original, (), "acme")
    (advice,) = re.findall("`(.*?)`", str(denied.value))
    file = file_of(f"{SMALLEST}tenants:\n  acme:\n    key_env: CALLER_KEY\n    {advice}\n", tmp_path)
    tenant = TenantSettings.model_validate(tenants_of(file, ENVIRONMENT)["acme"])
    check(original, tenant.provider, "acme")


def test_off_without_quotes_is_the_word_in_settings_of_the_gateway_and_of_a_tenant(tmp_path: Path) -> None:
    text = (
        f"{SMALLEST}tenants:\n  acme: {{key_env: CALLER_KEY, hits: {{others: off}}, guard: {{secrets: off}}, "
        "prompt: {diet: off}}\ngateway: {settings: {hedge: {mode: off}, prompt: {diet: off, whole: off}}}\n"
    )
    file = file_of(text, tmp_path)
    tenant = TenantSettings.model_validate(tenants_of(file, ENVIRONMENT)["acme"])
    assert (tenant.hits.others, tenant.guard.secrets, tenant.prompt.diet) == ("off", "off", "off")
    hedge, prompt = (file.gateway.settings[name] for name in ("hedge", "prompt"))
    assert HedgeSettings.model_validate(hedge).mode == "off"
    assert PromptSettings.model_validate(prompt).diet == "off"
    assert PromptSettings.model_validate(prompt).whole is False, "`whole` is a boolean"
    with pytest.raises(ValidationError, match="input_value=True"):
        HedgeSettings.model_validate({"mode": True})


async def test_a_callers_key_that_is_gone_once_its_file_is_read_refuses_the_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hr-1")
    text = f"{SMALLEST}tenants: {{acme: {{key_file: key}}}}"
    found = parse(text, "mesh.yaml", Surroundings(tmp_path, {}))
    (tmp_path / "key").unlink()
    with pytest.raises(MeshError, match=r"^mesh\.yaml: a file that can be read is needed"):
        await planned(found, tmp_path)
