"""Valid mesh files, and the errors for invalid ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.meshfile.fields import Surroundings
from launcher.meshfile.problems import BadMeshFile, Problem
from launcher.meshfile.reading import MeshFileReading, parse, read
from launcher.meshfile.schema import MeshFile
from tests.unit.launcher.meshfile.mesh_files import KEY

ENVIRONMENT = {"PROVIDER_KEY": KEY, "CALLER_KEY": "a-callers-key", "EMPTY": " "}
SMALLEST = """\
models:
  gpt:
    url: https://api.example/v1
    key_env: PROVIDER_KEY
"""


def read_text(
    text: str, mesh_folder: Path, environment: Mapping[str, str] = ENVIRONMENT, **more: bool
) -> MeshFileReading:
    return parse(text, "mesh.yaml", Surroundings(mesh_folder, environment, **more))


def file_of(text: str, mesh_folder: Path) -> MeshFile:
    return read_text(text, mesh_folder).whole()


def problems(text: str, mesh_folder: Path, environment: Mapping[str, str] = ENVIRONMENT) -> list[Problem]:
    with pytest.raises(BadMeshFile) as refused:
        read_text(text, mesh_folder, environment).whole()
    return list(refused.value.problems)


def problem_lines(text: str, mesh_folder: Path) -> list[str]:
    return [problem.formatted("mesh.yaml") for problem in problems(text, mesh_folder)]


def test_four_lines_are_a_mesh(mesh_folder: Path) -> None:
    file = file_of(SMALLEST, mesh_folder)
    assert file.models["gpt"].engine_used == "openai"
    assert (file.models["gpt"].tier, file.models["gpt"].replicas) == ("balanced", 1)
    assert (file.gateway.address, file.gateway.http_address) == ("127.0.0.1:50050", "127.0.0.1:50080")
    assert file.cache.enabled
    assert (file.vision, file.audio, file.tracing, file.tenants) == (None, None, None, {})


@pytest.mark.parametrize(
    ("said", "field", "engine"),
    [
        ("./model", "folder", "vllm"),
        ("model", "folder", "vllm"),
        ("smollm2-135m", "catalog", "vllm"),
        ("Qwen/Qwen3-8B", "hub", "vllm"),
        ("gpt2", "hub", "vllm"),
        ("http://127.0.0.1:8000/v1", "url", "openai"),
    ],
)
def test_a_model_in_short_is_a_folder_a_name_in_the_catalogue_or_on_the_hub_or_a_url(
    mesh_folder: Path, said: str, field: str, engine: str
) -> None:
    model = file_of(f"models: {{a: '{said}'}}", mesh_folder).models["a"]
    given = {name: getattr(model, name) for name in ("folder", "catalog", "hub", "url") if getattr(model, name)}
    assert (given, model.engine_used) == (
        {field: {"folder": mesh_folder / said, "url": [said]}.get(field, said)},
        engine,
    )


def test_sections_have_a_short_form(mesh_folder: Path) -> None:
    text = SMALLEST + (
        "gateway: 6000\ncache: off\nvision: model\naudio: large-v3-turbo\ntracing: http://127.0.0.1:4317\n"
        "tenants:\n  acme: {key_env: CALLER_KEY}\n"
    )
    file = file_of(text, mesh_folder)
    assert (file.gateway.address, file.cache.enabled) == ("127.0.0.1:6000", False)
    assert file.vision
    assert file.vision.models == mesh_folder / "model"
    assert file.audio
    assert (file.audio.hub, file.audio.folder) == ("large-v3-turbo", None)
    assert file.tracing
    assert file.tracing.otlp_endpoint == "http://127.0.0.1:4317"
    assert file.tenants["acme"].key_env == ["CALLER_KEY"]


def test_http_is_served_on_loopback_unless_it_is_said_otherwise(mesh_folder: Path) -> None:
    for said, served in {
        "6000": "127.0.0.1:6030",
        "{http: off}": "",
        "{http: 'off'}": "",
        "{http: 8080}": "127.0.0.1:8080",
        "{address: '0.0.0.0:50050'}": "",
        "{address: '0.0.0.0:50050', http: '0.0.0.0:8080'}": "0.0.0.0:8080",
    }.items():
        assert file_of(f"{SMALLEST}gateway: {said}\n", mesh_folder).gateway.http_address == served


def test_anchors_and_merged_keys_are_read(mesh_folder: Path) -> None:
    text = (
        "models:\n  a: &small\n    folder: model\n    tier: fast\n    replicas: 2\n"
        "  b: &large\n    <<: *small\n    tier: quality\n  c: *large\n"
    )
    models = file_of(text, mesh_folder).models
    for name in ("b", "c"):
        model = models[name]
        assert (model.folder, model.tier, model.replicas) == (mesh_folder / "model", "quality", 2)


WRONG = [
    ("models:\n  a: {hub: x/y, teir: fast}", "2:17: models.a.teir: no such key; did you mean tier?"),
    ("models: {a: x/y}\ncach: off", "2:1: cach: no such key; did you mean cache?"),
    ("models:\n  a: {hub: x/y, prices: {in: 1}}", "2:26: models.a.prices.in: no such key; there are input, output"),
    (
        "models: {a: x/y}\ngateway: {tools: {}}",
        "2:11: gateway.tools: no such key; there are address, http, workers, allow_anonymous, plaintext, settings; "
        "a setting of the service belongs into gateway.settings",
    ),
    (
        "models: {a: x/y}\ngateway: {settings: {tools: {sources: {time: {authorization: Bearer x}}}}}",
        "2:21: gateway.settings: tools.sources.time.authorization: a credential must not be in the file; "
        "set the variable HEDGEROW_<SERVICE>_TOOLS__SOURCES__TIME__AUTHORIZATION",
    ),
    (
        "models:\n  a:\n    hub: x/y\n    tier: quick",
        "4:11: models.a.tier: it must be 'fast', 'balanced' or 'quality', got 'quick'",
    ),
    ("models:\n  a: {hub: x/y, replicas: two}", "2:27: models.a.replicas: it must be a valid integer, got 'two'"),
    ("models:\n  a: {hub: x/y, replicas: 65}", "2:27: models.a.replicas: it must be less than or equal to 64, got 65"),
    (
        "models:\n  a:\n    hub: x/y\n    prices: {input: -1}",
        "4:21: models.a.prices.input: it must be greater than or equal to 0, got -1",
    ),
    ("models:\n  a: {tier: fast}", "2:3: models.a.url: one of folder, catalog, hub and url is needed, has none"),
    (
        "models:\n  a: {hub: x/y, url: http://h/v1}",
        "2:22: models.a.url: one of folder, catalog, hub and url is needed, has hub and url, got 'http://h/v1'",
    ),
    ("models:\n  a: {hub: x/y, serves: rerank}", "2:25: models.a.serves: rerank only with a url"),
    (
        "models:\n  a: {url: 'http://h/v1', serves: [chat, rerank]}",
        "2:35: models.a.serves: chat alone, or some of embeddings, rerank and moderations, each once",
    ),
    (
        "models:\n  a: {url: 'http://h/v1', engine: anthropic, serves: embeddings}",
        "2:54: models.a.serves: embeddings only with the engine openai",
    ),
    ("models:\n  a: {folder: nope}", "2:15: models.a.folder: a folder is needed, there is none at {folder}/nope"),
    (
        "models:\n  a: {folder: ~no-such-user/model}",
        "2:15: models.a.folder: a path is needed, ~no-such-user is no user's home folder",
    ),
    (
        f"models:\n  a: {{folder: ./{'a' * 300}}}",
        "2:15: models.a.folder: a path that can be read is needed (File name too long), got './aaa",
    ),
    (
        f"models:\n  a: {{url: http://h/v1, key_file: {'a' * 300}}}",
        "2:35: models.a.key_file: a path that can be read is needed (File name too long), got 300 characters (not",
    ),
    (
        f"models: {{a: x/y}}\ncache: {{database: ./{'a' * 300}}}",
        "2:19: cache.database: a path that can be read is needed (File name too long), got './aaa",
    ),
    (
        "models:\n  a: {url: http://h/v1, key_env: EMPTY}",
        "2:34: models.a.key_env: the environment variable EMPTY is empty",
    ),
    (
        "models:\n  a: {url: http://h/v1, key_env: NOT_THERE}",
        "2:34: models.a.key_env: the environment variable NOT_THERE is not set",
    ),
    (
        "models:\n  a: {hub: x/y, key_env: PROVIDER_KEY}",
        "2:26: models.a.key_env: only with a url, got 12 characters (not shown)",
    ),
    (
        "models:\n  a: {url: http://h/v1, key_env: PROVIDER_KEY, key_file: key.txt}",
        "2:58: models.a.key_file: not together with key_env: one key",
    ),
    (
        "models: {a: x/y, A: x/z}",
        "1:18: models.A: a name that differs from a in letters or digits is needed: both would have llm-a",
    ),
    (
        "models:\n  a: {hub: x/y, replicas: 2}\n  a-2: x/z",
        "3:3: models.a-2: a name that differs from a in letters or digits",
    ),
    ("models:\n  a: {url: [http://h/v1, http://h/v1]}", "2:12: models.a.url: each URL once"),
    ("models:\n  a: {url: [http://h/v1, here]}", "2:26: models.a.url.1: http://host:port or https://host is needed"),
    ("models:\n  a: x/y\n  a: x/z", "3:3: models.a: once; it stands in line 2 already"),
    ("models: {}", "1:9: models: Dictionary should have at least 1 item"),
    ("models: {'a b': x/y}", "1:10: models.a b: String should match pattern"),
    ("gateway: 6000", "1:1: models: is needed"),
    ("models: {a: x/y}\ngateway: 66000", "2:10: gateway.address: a port from 1 to 65535 is needed, got 66000"),
    (
        "models: {a: x/y}\ngateway: {address: 6000, http: 6000}",
        "2:32: gateway.http: another port than that of address is needed, got 6000",
    ),
    (
        "models: {a: x/y}\ngateway: {address: here}",
        "2:20: gateway.address: host:port, or a port on loopback, is needed",
    ),
    ("models: {a: x/y}\ntenants:\n  no: {}", "3:3: tenants: a name: text, in quotes where YAML takes it"),
    ("models: {a: x/y}\ntenants:\n  t: {}", "3:3: tenants.t.key_sha256: a key is needed (key_env, key_file"),
    (
        'models: {a: x/y}\ngateway:\n  settings: {log_level: "a\\0b"}',
        "3:25: gateway.settings.log_level: no NUL, which no setting of a process can hold",
    ),
    ("[" * 500, "1:1: not valid YAML: nested too deeply"),
    ("models:\n  a: \x07", "2:6: not valid YAML: a character that must not be in it"),
    (
        "models: {a: x/y}\ntenants: {' t': {key_env: CALLER_KEY}}",
        "2:11: tenants. t: a name of 1 to 256 printable characters",
    ),
    ("models: {a: x/y", "1:16: not valid YAML: expected ',' or '}'"),
    (
        "models:\n  a: x/y\n b: x/z",
        "3:2: not valid YAML: this does not continue the lines before it; check the indentation and the quotes",
    ),
    (
        "models: {e: {url: 'http://h/v1', serves: embeddings}}",
        "1:9: models: a model that chats is needed: e serves other requests alone",
    ),
    ("", "1:1: keys and values are needed, `models:` at least"),
    (
        "models: {a: x/y}\ncache: {redis_url: 'redis://:pw@h:6379/0'}",
        "2:20: cache.redis_url: a URL without user, password and query is needed; for others there is redis_url_env",
    ),
    ("models:\n  a: {hub: x/y, options: {model: z}}", "2:26: models.a.options: model: belongs into folder, hub or"),
    ("models: {a: x/y}\ngateway: {settings: {workers: 2}}", "2:21: gateway.settings: workers: belongs into workers"),
    ("models:\n  a: {hub: x/y, engine: openai}", "2:25: models.a.engine: openai only with a url"),
    ("models: {a: x/y}\nprofile: 2026-13-45", "2:10: not valid YAML: no valid timestamp"),
    ("models: {a: x/y}\nprofile: !!timestamp soon", "2:10: not valid YAML: no valid timestamp"),
    ("models: {a: x/y}\nprofile: !!bool maybe", "2:10: not valid YAML: no valid bool"),
    ("models: {a: x/y}\nprofile: !!int ''", "2:10: not valid YAML: no valid int"),
    ("models: &a\n  a: *a", "1:9: not valid YAML: an anchor that repeats itself"),
    (
        "models: {a: x/y}\ntenants: {t: {key_env: CALLER_KEY, tools: ['search_*']}}",
        "2:44: tenants.t.tools.0: a tool is needed as source/name, such as collections/search_*, or * for all",
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_each_problem_is_reported_with_its_line_its_path_and_its_limit(
    text: str, expected: str, mesh_folder: Path
) -> None:
    beginning = "mesh.yaml:" + expected.replace("{folder}", str(mesh_folder))
    lines = problem_lines(text, mesh_folder)
    assert any(line.startswith(beginning) for line in lines), lines


def test_all_problems_are_reported_together_in_the_order_of_their_lines(mesh_folder: Path) -> None:
    text = (
        "models:\n"
        "  a: ./nowhere\n"
        "  b: {url: http://h/v1, key_env: NOT_THERE, tier: best, replicas: 0}\n"
        "  b: x/y\n"
        "tenants:\n"
        "  acme: {concurrency: -1}\n"
        "tracing: {ratio: 2}\n"
        "colour: blue\n"
    )
    found = problems(text.replace("  b: x/y\n", ""), mesh_folder)
    assert [problem.line for problem in found] == [2, 3, 3, 3, 5, 5, 6, 6, 7]
    assert [problem.line for problem in problems(text, mesh_folder)][-1] == 8


def test_valid_parts_are_left_for_later_checks(mesh_folder: Path) -> None:
    text = (
        "models:\n"
        "  gone: {tier: fast, replicas: 0}\n"
        "  left: {url: http://h/v1, tier: best, options: {http_version: 3}}\n"
        "tracing: {ratio: 2}\n"
        "colour: blue\n"
    )
    found = read_text(text, mesh_folder)
    assert found.file
    assert list(found.file.models) == ["left"]
    assert (found.file.models["left"].options, found.file.tracing) == ({"http_version": 3}, None)
    assert len(found.problems) == 6
    assert read_text("colour: blue", mesh_folder).file is None


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadMeshFile, match=reason):
            read(path).whole()
    (tmp_path / "large.yaml").write_text("#" * 1_100_000)
    with pytest.raises(BadMeshFile, match="at most 1048576 bytes"):
        read(tmp_path / "large.yaml").whole()
