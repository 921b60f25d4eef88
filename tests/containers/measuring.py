"""`python -m tests.containers.measuring`: how large the images are, and how long a container takes to serve.

A cold start is from `docker run` to the first SERVING of its health, asked for from outside every 20 ms, and not by the
health check of its image. One container starts at a time, the gateway when those it calls serve. Of a service that ends
when its work is done (`models`) it is the time until then, once.
"""

from __future__ import annotations

import statistics
import time

from services.runtime.probe import ask
from tests.containers.composed import Composed, remove
from tests.containers.docker import BASE, IMAGES, REPOSITORY, VERSION, build, docker, size_mb
from tests.containers.on_this_network import Plan, plan

_NAME, _TIMES, _START_S, _POLL_S = "hedgerow-measured", 3, 300, 0.02
_TOPOLOGY = "./deploy/docker/topology.yaml:/etc/hedgerow/topology.yaml:ro"
# Of docker-compose.mesh.yml, which has it speak TLS.
_CONTROL = {
    "image": f"hedgerow/control:{VERSION}",
    "environment": {
        "HEDGEROW_CONTROL_TOPOLOGY": "/etc/hedgerow/topology.yaml",
        "HEDGEROW_CONTROL_PLAINTEXT": "true",
    },
    "volumes": [_TOPOLOGY],
    "read_only": True,
}


def main() -> None:
    images = {image: build(image) for image in IMAGES}
    base_mb = size_mb(BASE)
    print(f"base: {base_mb} MB")
    print("| image | MB | above its base | service | serves after, s (median, range of 3) | MiB then |")
    print("|---|---|---|---|---|---|")
    planned = plan(REPOSITORY / "docker-compose.yml", _NAME, {"control": _CONTROL})
    try:
        found = {name: _measured(planned, name) for name in planned.services}
    finally:
        remove(_NAME)
    for image, name in images.items():
        rows = [each for each in planned.services if planned.services[each]["image"] == name] or ["–"]
        for service in rows:
            print(
                f"| {image} | {size_mb(name)} | {size_mb(name) - base_mb} | {service} | {found.get(service, '– | –')} |"
            )


def _measured(planned: Plan, name: str) -> str:
    """Median, range and memory of some cold starts; it goes on running after the last."""
    if planned.ends(name):
        begun = time.monotonic()
        planned.run(name)
        Composed(planned.project).wait_healthy([name])
        return f"ends after {time.monotonic() - begun:.0f} s | –"
    times_s = []
    for left in reversed(range(_TIMES)):
        times_s.append(_cold_start_s(planned, name))
        container = Composed(planned.project).states()[name]["Id"]
        memory = docker("stats", "--no-stream", "--format", "{{.MemUsage}}", container).partition(" /")[0]
        if left:
            docker("rm", "--force", "--volumes", container)
    return f"{statistics.median(times_s):.1f} ({min(times_s):.1f}–{max(times_s):.1f}) | {memory}"


def _cold_start_s(planned: Plan, name: str) -> float:
    (address,) = (
        text
        for variable, text in planned.settings(name).items()
        if variable.endswith(f"{_service(planned, name)}_ADDRESS")
    )
    begun = time.monotonic()
    planned.run(name, checked=False)
    while ask(address, None) != "SERVING":
        assert time.monotonic() < begun + _START_S, f"{name} does not serve"
        time.sleep(_POLL_S)
    return time.monotonic() - begun


def _service(planned: Plan, name: str) -> str:
    return str(planned.services[name]["image"]).partition("/")[2].partition(":")[0].upper()


if __name__ == "__main__":
    main()
