"""Generates the stubs in `hedgerow/` from the contracts in `protos/`. Run it with `make proto`.

A contract's directory is its package, so the generated imports need no rewriting.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

PROTOS = Path(__file__).parent
REPOSITORY = PROTOS.parent
STUBS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")
# Without the experimental calls by address, which are last in a file: no caller uses them, and their channels lack the
# keepalive and the limits of `hedgerow.channel`.
_STATIC_CALLS = "\n\n # This class is part of an EXPERIMENTAL API."


def main() -> None:
    """Replace every stub in the working tree."""
    for stub in find_stubs(REPOSITORY):
        (REPOSITORY / stub).unlink()
    generate(REPOSITORY)
    print(f"{len(find_stubs(REPOSITORY))} stubs generated")


def generate(into: Path) -> None:
    """Write stubs and the packages that hold them below `into`. A contract without services gets no gRPC stub."""
    contracts = describe().file
    with_services = [contract.name for contract in contracts if contract.service]
    _protoc([f"--python_out={into}", f"--pyi_out={into}", *(contract.name for contract in contracts)])
    _protoc([f"--grpc_python_out={into}", *with_services])
    for stub in (into / "hedgerow").rglob("*_pb2_grpc.py"):
        stub.write_text(stub.read_text().partition(_STATIC_CALLS)[0])
    for stub in find_stubs(into):
        for package in stub.parents[:-1]:  # the last one is `into` itself
            (into / package / "__init__.py").touch()


def describe() -> FileDescriptorSet:
    """The contracts as descriptors, comments included; `file` is in the order of the names."""
    with tempfile.NamedTemporaryFile() as output:
        _protoc(["--include_source_info", f"--descriptor_set_out={output.name}", *_names()])
        return FileDescriptorSet.FromString(output.read())


def find_stubs(root: Path) -> list[Path]:
    """The generated files below `root`/hedgerow, relative to `root`."""
    return sorted(path.relative_to(root) for pattern in STUBS for path in (root / "hedgerow").rglob(pattern))


def _names() -> list[str]:
    return sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.rglob("*.proto"))


def _protoc(arguments: Sequence[str]) -> None:
    well_known = files("grpc_tools") / "_proto"
    if protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known}", *arguments]):
        raise SystemExit("protoc refused the contracts; see above")


if __name__ == "__main__":
    main()
