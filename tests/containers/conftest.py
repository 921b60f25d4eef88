"""Whether containers are tested: not unless asked for, even where there is an engine, because the first build takes
minutes and gigabytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.containers.docker import IMAGES, build, unreachable

_HERE = str(Path(__file__).parent)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--images", action="store_true", help="build the images and run them on a Docker engine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if str(item.path).startswith(_HERE)]
    if ours and (why := _why_not(config)):
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=why))


def _why_not(config: pytest.Config) -> str:
    if not config.getoption("--images", default=False):
        return "`make images` builds and runs the images: it needs a Docker engine, and minutes"
    why = unreachable()
    return why and f"{why}; start a Docker engine (DOCKER_HOST says where it is) and try `make images` again"


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """Every image's name, built from this tree."""
    return {image: build(image) for image in IMAGES}
