"""Settings of the control plane."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from services.control import topology
from services.runtime.process.config import ServiceSettings
from services.runtime.process.fixed import Fixed


class ControlSettings(ServiceSettings):
    """Settings of the control plane."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_CONTROL_")

    address: str = Field("127.0.0.1:50060", description="Where to serve xDS and `ControlService`, host:port.")
    topology: Path = Field(description="YAML file of the topology. Valid changes take effect at once.")
    reread_ms: Fixed[int] = Field(
        1_000,
        ge=50,
        le=60_000,
        description="How often to read the topology again without having heard of a change, in milliseconds: not every "
        "file system tells.",
    )
    resolve_interval_ms: Fixed[int] = Field(
        1_000, ge=100, le=3_600_000, description="Interval between look-ups of endpoints' names."
    )
    resolve_timeout_ms: Fixed[int] = Field(
        2_000,
        ge=10,
        le=60_000,
        description="How long a look-up may take before the last answer stands, in milliseconds.",
    )
    health_timeout_ms: Fixed[int] = Field(
        3_000,
        ge=50,
        le=60_000,
        description="How long an endpoint may take to say how it is before it counts as unreachable, in milliseconds. "
        "After a start, clients wait as long at most for the first round of answers.",
    )
    envoy_sds_dir: Path = Field(
        Path(),
        description="Folder on Envoy's machine with `sds_cert.yaml` and `sds_ca.yaml`, relative to the folder of its "
        "bootstrap.",
    )

    @field_validator("topology")
    @classmethod
    def _can_be_used(cls, file: Path) -> Path:
        topology.read(file)  # at the start a bad one is refused; later the last good one stays
        return file
