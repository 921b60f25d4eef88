"""Valid topology files, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.control.topology import BadTopology, read

ENDPOINT = 'endpoints: [{address: "10.0.0.1:1"}]'  # stands where a text says ENDPOINT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: {}", "services: "),
        ("services: {cache: {endpoints: []}}", "services.cache.endpoints: "),
        ("services: {Cache: {ENDPOINT}}", "services.Cache.[key]: "),
        ('services: {a: {endpoints: [{address: "10.0.0.1"}]}}', "services.a.endpoints.0.address: "),
        ('services: {a: {endpoints: [{address: "h:70000"}]}}', "a port from 1 to 65535 is required, 70000 is none"),
        ('services: {a: {endpoints: [{address: "h:1", weight: 0}]}}', "services.a.endpoints.0.weight: "),
        ('services: {a: {endpoints: [{address: "h:1", wieght: 2}]}}', "services.a.endpoints.0.wieght: "),
        ('services: {a: {endpoints: [{address: "h:٣"}]}}', "services.a.endpoints.0.address: "),
        ('services: {a: {endpoints: [{address: "a\\0b:1"}]}}', "0.address: printable characters are required"),
        (
            'services: {a: {endpoints: [{address: "h:1", zone: "\\ud800"}]}}',
            "0.zone: printable characters are required",
        ),
        (
            'regions: {"\\ud800": {latitude: 1, longitude: 1}}\nservices: {a: {ENDPOINT}}',
            "printable characters are required",
        ),
        ("services: {a: {ENDPOINT, balance: random}}", "services.a.balance: "),
        ("services: {a: {ENDPOINT, drill: {drop_percent: 101}}}", "services.a.drill.drop_percent: "),
        ("services: {a: {ENDPOINT, drill: {abort: BROKEN}}}", "a gRPC status code other than OK is required"),
        ("services: {a: {ENDPOINT, drill: {abort: OK}}}", "a gRPC status code other than OK is required"),
        ("services: {a: {ENDPOINT}}\nedge: {address: '0.0.0.0:1', service: b}", "edge.service: one of a, got b"),
        (
            "regions: {west: {latitude: 1, longitude: 1}}\nservices: {a: {ENDPOINT}}",
            "services.a.endpoints[0].region: one of west, got nothing",
        ),
        ("services: {a: {ENDPOINT, balance: ring_hash, hash_header: ''}}", "services.a.hash_header: "),
        ("services: {a: {ENDPOINT, outliers: {ejection_ms: 3000000000}}}", "services.a.outliers.ejection_ms: "),
        (
            "services: {a: {ENDPOINT}, a: {ENDPOINT}}",
            'topology: a stands twice in "<unicode string>", line 1, column 55',
        ),
        ("services: [", "topology: "),
        ("services: {made: 2026-02-30}", "topology: day "),
        ("[" * 500, "topology: nested too deeply"),
        ("services: !!int ''", "topology: a value that is none of its tag's (IndexError)"),
        ("- one\n- two", "topology: "),
        ("", "topology: "),
    ],
)
def test_a_mistake_is_refused_by_field_and_value(text: str, message: str, tmp_path: Path):
    file = tmp_path / "topology.yaml"
    file.write_text(text.replace("ENDPOINT", ENDPOINT))
    with pytest.raises(BadTopology) as refused:
        read(file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadTopology, match="No such file"):
        read(tmp_path / "none.yaml")
