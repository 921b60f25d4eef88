"""The commands and manifests of docs/kubernetes.md are valid, as far as a test without a cluster can try them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.contract.chart import CHART, ask, needs_helm, over

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/kubernetes.md").read_text()
KUBECTL = shutil.which("kubectl")
OPERATORS = {"mine.yaml", "values.yaml"}  # files of the reader's own


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands(program: str) -> Iterator[list[str]]:
    """The commands of the page and of the values files, without the shell's additions."""
    values = (re.sub(r"^# ?", "", path.read_text(), flags=re.M) for path in (CHART.parent / "values").glob("*.yaml"))
    for text in (*blocks("sh"), *values):
        for line in re.sub(r"\\\n", " ", text).splitlines():
            if line.strip().startswith(f"{program} "):
                yield shlex.split(re.sub(r"\$\([^)]*\)", "made", line))


def test_the_page_is_short_and_has_commands() -> None:
    assert len(PAGE.splitlines()) <= 250
    assert len(list(commands("helm"))) > 8
    assert len(list(commands("kubectl"))) > 5


@pytest.mark.skipif(not KUBECTL, reason="no kubectl")
def test_kubectl_takes_what_is_created(tmp_path: Path) -> None:
    for file in ("tenants.yaml", "tls.crt", "tls.key", "jwks.json"):
        (tmp_path / file).write_text("{}")
    tried = 0
    for _, *arguments in commands("kubectl"):
        if "create" in arguments and "tls" not in arguments:  # which reads the certificate
            command = [str(KUBECTL), *arguments, "--dry-run=client", "-o", "yaml"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 0, f"{arguments}: {done.stderr}"
            made = yaml.safe_load(done.stdout)
            assert made["kind"] in ("Namespace", "Secret")
            tried += 1
    assert tried >= 5


def test_helm_is_given_files_that_there_are() -> None:
    for _, verb, *arguments in commands("helm"):
        assert verb in ("install", "upgrade")
        assert arguments[:4] == ["mesh", "deploy/helm/hedgerow", "-n", "hedgerow"]
        files = [value for option, value in pairwise(arguments) if option == "-f"]
        assert all(name in OPERATORS or (REPOSITORY / name).exists() for name in files)


@needs_helm
def test_the_prefix_of_the_images_is_what_the_page_says() -> None:
    prefix = "registry.example.com/hedgerow"
    assert f"--set images.prefix={prefix}" in PAGE
    (answer,) = ask([{"images": {"prefix": prefix}}])
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in answer.ours.values()}
    assert all(image.startswith(f"{prefix}/") for image in images)


def test_values_on_the_page_are_values_of_the_chart() -> None:
    schema = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert len(blocks("yaml")) >= 2
    for text in blocks("yaml"):
        schema.validate(over(defaults, yaml.safe_load(text)))
