"""Writes what the Helm chart takes from the code: `make docs` runs `python -m scripts.helm_files`.

Ports and callers of services come from `hedgerow.identities`, Envoy's bootstrap from `launcher.envoy`. The chart's
templates read both from its folder `files`.
"""

from __future__ import annotations

import json
from pathlib import Path

from hedgerow.identities import CONTROL, SERVICES
from launcher.envoy import write_bootstrap

FILES = Path(__file__).parents[1] / "deploy/helm/hedgerow/files"
_TLS_DIRS = {"mtls": Path("/tls"), "plaintext": None}


def main() -> None:
    write(FILES)
    print(f"{FILES.parent.name}: {len(list(FILES.rglob('*.*')))} files")


def write(folder: Path) -> None:
    """The services, and the bootstrap with and without mutual TLS. A chart's value adds the region to it."""
    services = {
        service.name: {
            "port": service.port,
            "callers": sorted(service.callers),
            **({"adds_context": True} if service.adds_context else {}),
        }
        for service in SERVICES.values()
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "services.json").write_text(f"{json.dumps(services, indent=2)}\n")
    for name, tls_dir in _TLS_DIRS.items():
        write_bootstrap(
            folder / "envoy" / name,
            node_id="edge",
            region="",
            control_address=f"{CONTROL}:{SERVICES[CONTROL].port}",
            tls_dir=tls_dir,
            edge_tls_dir=Path("/edge-tls"),
        )


if __name__ == "__main__":
    main()
