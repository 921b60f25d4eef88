"""Each image builds, has what its service imports, and no more than it should."""

from __future__ import annotations

import pytest

from tests.containers.docker import BASE, IMAGES, Failed, docker, inspect, size_mb
from tests.waiting import until

pytestmark = pytest.mark.timeout(3600)  # the first build of all of them

# Imports every module of the service that an image is for, and prints what is missing for that.
_IMPORT_ALL = """
import importlib, pkgutil, services.{0}
for module in pkgutil.walk_packages(services.{0}.__path__, "services.{0}."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        print(error.name)
"""
_HAS_TORCH = "from importlib.util import find_spec; print(find_spec('torch') is not None)"
# Of the whole image, without its base, in MB; measured ones are in docs/benchmarks.md.
_MOST_MB = {
    "audio": 560,
    "cache": 470,
    "cli": 180,
    "control": 100,
    "gateway": 110,
    "llm": 3000,
    "models": 1300,
    "proxy": 150,
    "router": 90,
    "vision": 260,
}
# For engines that have to be listed: they say what they lack.
_AT_WILL = {"vision": {"torch"}}


each_service = pytest.mark.parametrize("service", sorted(set(IMAGES) - {"cli", "models", "proxy"}))


def python(image: str, code: str) -> str:
    """Run code in the image's Python and return its output."""
    return docker("run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c", code, timeout_s=120)


@each_service
def test_an_image_has_all_that_its_service_imports(images: dict[str, str], service: str) -> None:
    missing = set(python(images[service], _IMPORT_ALL.format(service)).split())
    assert missing == _AT_WILL.get(service, set())


@each_service
def test_only_language_models_bring_torch(images: dict[str, str], service: str) -> None:
    assert python(images[service], _HAS_TORCH) == str(service == "llm")


def test_the_command_lines_image_makes_certificates(images: dict[str, str]) -> None:
    said = docker("run", "--rm", "--network", "none", images["cli"], "certs", "--dir", "/certs", "--days", "1")
    assert "gateway" in said


def test_the_proxys_image_says_what_it_can_be_given(images: dict[str, str]) -> None:
    with pytest.raises(Failed, match="no model to serve"):
        docker("run", "--rm", "--network", "none", images["proxy"])


async def test_the_proxys_image_serves_for_callers_with_a_key(images: dict[str, str]) -> None:
    model = ("--model", "m=http://127.0.0.1:9/v1#m")
    with pytest.raises(Failed, match="callers from elsewhere need a key; set HEDGEROW_API_KEY"):
        docker("run", "--rm", "--network", "none", images["proxy"], *model)
    container = docker("run", "--detach", "--network", "none", "-e", "HEDGEROW_API_KEY=k", images["proxy"], *model)
    try:
        await until(lambda: inspect("container", container)["State"]["Health"]["Status"] == "healthy", 60, every_s=0.5)
        docker("stop", container)
        assert inspect("container", container)["State"]["ExitCode"] == 0
        said = docker("logs", container)
    finally:
        docker("rm", "--force", container)
    assert "OpenAI's clients:     base_url=http://127.0.0.1:50080/v1  api_key=$HEDGEROW_API_KEY" in said


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_no_larger_than_it_has_to_be(images: dict[str, str], image: str) -> None:
    assert size_mb(images[image]) - size_mb(BASE) <= _MOST_MB[image]
