"""The catalogue's data, where models are, and what a mesh file makes of their names."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from launcher.catalog import NotPulled, Step, UnknownModel, cache_folder, entries, entry, home, path, pulling
from launcher.catalog.screen import shown
from launcher.catalog.steps import bytes_in
from launcher.catalog.store import MANIFEST, PlacedManifest, damage, described, is_whole, partial_folder
from launcher.meshfile.catalog import missing_models
from tests.unit.launcher.meshfile.test_reading import file_of, problem_lines

NAMES = ["smollm2-135m", "smollm2-135m-int8", "whisper-base", "efficientnet-lite0", "minilm-l6"]
_SHA256 = re.compile(r"[0-9a-f]{64}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HEDGEROW_MODELS_DIR", raising=False)
    monkeypatch.setenv("HEDGEROW_MODELS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def placed(folder: Path, name: str) -> Path:
    """A model of the catalogue, as small as can be."""
    (folder / name).mkdir(parents=True)
    (folder / name / "config.json").write_text('{"max_position_embeddings": 4096}')
    manifest = PlacedManifest(name, entry(name).version, "MIT", "here", "test", described(folder / name))
    manifest.write(folder / name)
    return folder / name


def test_every_file_of_every_source_has_its_sha_256() -> None:
    assert list(entries()) == NAMES
    for each in entries().values():
        for source in each.sources:
            assert source.files
            assert all(map(_SHA256.fullmatch, [*source.files.values(), *source.made.values()]))
            assert bool(source.hub) != bool(source.packages)
            assert not source.hub or re.fullmatch(r"[0-9a-f]{40}", source.revision)
            assert source.bytes > 0


def test_every_model_can_be_had_from_the_package_index_alone() -> None:
    assert all(each.sources[-1].packages for each in entries().values())


def test_wheels_are_of_the_version_that_is_asked_for() -> None:
    for each in entries().values():
        for package in (package for source in each.sources for package in source.packages):
            assert package.wheel.startswith(f"{package.name.replace('-', '_')}-{package.version}-")


def test_an_unknown_name_is_refused_with_the_nearest_or_with_all() -> None:
    with pytest.raises(UnknownModel, match=r"did you mean whisper-base\?"):
        entry("wisper-base")
    with pytest.raises(UnknownModel, match=r"it has smollm2-135m, "):
        entry("gpt-5")


def test_the_cache_folder_follows_the_setting_then_xdg_then_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("HEDGEROW_MODELS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/hedgerow/models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home/.cache/hedgerow/models"


def test_a_model_that_is_not_here_is_refused_with_the_command_that_gets_it(cache: Path) -> None:
    with pytest.raises(NotPulled, match="hedgerow models pull whisper-base"):
        path("whisper-base")
    assert home("whisper-base") == cache / "whisper-base"
    assert placed(cache, "whisper-base") == path("whisper-base")


def test_a_folder_that_is_offered_comes_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(cache, "whisper-base")
    monkeypatch.setenv("HEDGEROW_MODELS_DIR", str(tmp_path / "offered"))
    assert path("whisper-base") == cache / "whisper-base"
    assert placed(tmp_path / "offered", "whisper-base") == path("whisper-base")


def test_a_model_of_another_version_or_size_is_not_whole(cache: Path) -> None:
    wanted, folder = entry("whisper-base"), placed(cache, "whisper-base")
    assert is_whole(wanted, folder)
    manifest = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(manifest.replace('"version": 1', '"version": 0'))
    assert not is_whole(wanted, folder)
    (folder / MANIFEST).write_text(manifest)
    (folder / "config.json").write_text("{}")
    assert not is_whole(wanted, folder)
    assert list(damage(folder)) == ["config.json"]


def test_a_model_that_is_placed_while_its_removal_waits_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partial_folder() / "whisper-base").mkdir(parents=True)

    @contextmanager
    def locked(*_: object) -> Iterator[None]:
        (partial_folder() / "whisper-base").rmdir()
        placed(cache, "whisper-base")
        yield

    monkeypatch.setattr(pulling, "locked", locked)
    assert pulling.remove("whisper-base") == [cache / "whisper-base"]
    assert not home("whisper-base").exists()


@pytest.mark.parametrize("broken", ["", "[]", "{}", '{"files": 3}', '{"files": {"a": {"sha": 1}}}', "\0"])
def test_a_manifest_that_cannot_be_read_is_no_model(cache: Path, broken: str) -> None:
    folder = placed(cache, "whisper-base")
    (folder / MANIFEST).write_text(broken)
    assert not is_whole(entry("whisper-base"), folder)


def test_a_folder_of_the_same_name_comes_before_the_catalogue(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "whisper-base").mkdir()
    file = file_of("models: {a: smollm2-135m}\naudio: whisper-base\nvision: efficientnet-lite0", tmp_path)
    assert file.audio
    assert file.vision
    assert file.audio.local == tmp_path / "whisper-base"
    assert file.vision.local == cache / "efficientnet-lite0"
    assert file.models["a"].local == cache / "smollm2-135m"


def test_a_missing_model_is_named_once(tmp_path: Path, cache: Path) -> None:
    text = "models: {a: smollm2-135m, b: {catalog: smollm2-135m, tier: quality}, c: x/y}\naudio: whisper-base"
    file = file_of(text, tmp_path)
    assert [each.name for each in missing_models(file)] == ["smollm2-135m", "whisper-base"]
    placed(cache, "smollm2-135m")
    assert [each.name for each in missing_models(file)] == ["whisper-base"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("models: {a: smollm2-135}", "models.a.catalog: no model 'smollm2-135' in the catalogue; did you mean"),
        ("models: {a: {catalog: whisper-base}}", "of the kind llm there are smollm2-135m, smollm2-135m-int8"),
        ("models: {a: {catalog: smollm2-135m, hub: x/y}}", "one of folder, catalog, hub and url is needed, has"),
        ("models: {a: x/y}\nvision: efficientnet", "vision.catalog: no model 'efficientnet' in the catalogue"),
        ("models: {a: x/y}\nvision: {default: a}", "vision.catalog: one of models and catalog is needed"),
        ("models: {a: x/y}\naudio: {catalog: whisper-base, hub: base}", "one of folder, catalog and hub is needed"),
    ],
)
def test_an_unknown_catalogue_model_is_refused_with_the_known_names(tmp_path: Path, text: str, wrong: str) -> None:
    assert wrong in " ".join(problem_lines(text, tmp_path))


def test_outside_of_a_terminal_each_state_is_a_line() -> None:
    out = io.StringIO()
    with shown(Console(file=out, width=200)) as report:
        for done in range(3):
            report(Step("tiny", "downloading", "fake==1", done, 5_000_000))
        report(Step("tiny", "placed", "/there"))
    assert out.getvalue().splitlines() == ["tiny downloading fake==1 of 5 MB", "tiny placed /there"]


def test_a_folder_that_goes_while_its_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "file").write_bytes(b"1234")
    assert bytes_in(tmp_path / "all") == 12
    removed = list[Path]()

    def remove_first(path: Path) -> int:
        if not removed:
            removed.append(tmp_path / "all")
            shutil.rmtree(tmp_path / "all")
        return os.stat(path).st_size

    monkeypatch.setattr("os.path.getsize", remove_first)
    assert bytes_in(tmp_path / "all") == 0
