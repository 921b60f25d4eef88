"""Envoy's bootstrap as data: its identity, the control plane's address, its limits. No file is touched
here; `envoy.py` writes them."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from hedgerow.identities import server_name_of, uri_of

# The secrets that the control plane names, and the files beside the bootstrap that they come from.
SECRETS = {"mesh_cert": "sds_cert.yaml", "mesh_ca": "sds_ca.yaml", "edge": "sds_edge.yaml"}
CONTROL_IDENTITY = "control"
_MAX_HEAP_BYTES = 512 * 1024 * 1024
_MAX_CONNECTIONS = 20_000  # of the process; the topology's `edge.limits.connections` bounds the listener

# How soon it asks a control plane that was not there again; by default up to half a minute later.
_RETRY = {"base_interval": "0.2s", "max_interval": "2s"}
# Of a caller that starts calls and cancels them at once, as fast as it can (CVE-2023-44487, "rapid reset"), one is
# begun at a time, so those cancelled before their turn never reach a gateway; and its connection is closed once it has
# made this many and cancelled more than half of them within a second. In place of: no limit, and 500.
_RUNTIME = {"http.max_requests_per_io_cycle": 1, "overload.premature_reset_total_stream_count": 100}

_TYPES = "type.googleapis.com/envoy"
_TLS = f"{_TYPES}.extensions.transport_sockets.tls.v3"
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def bootstrap(
    *,
    node_id: str,
    region: str,
    control_address: str,
    admin_address: str,
    mtls: bool,
    otlp_address: str,
) -> dict[str, Any]:
    """The bootstrap; with `mtls`, Envoy and the control plane prove their identity to each other."""
    clusters = [_cluster("control", control_address, CONTROL_IDENTITY if mtls else "")]
    if otlp_address:
        clusters.append(_cluster("otlp", otlp_address))
    return {
        "node": {"id": node_id, "cluster": "edge", "locality": {"region": region}},
        # Every caller of this page may also stop Envoy, so it is for this machine alone.
        "admin": {"address": _address(admin_address), "ignore_global_conn_limit": True},
        "dynamic_resources": _dynamic(),
        "static_resources": {"clusters": clusters},
        "overload_manager": _overload(),
        "layered_runtime": {
            "layers": [
                {"name": "hedgerow", "static_layer": _RUNTIME},
                # Flags that an operator sets on a running Envoy, through its admin page, until it ends.
                {"name": "admin", "admin_layer": {}},
            ]
        },
    }


def secrets(tls_dir: Path | None, edge_tls_dir: Path | None) -> dict[str, dict[str, Any]]:
    """The files of `SECRETS` that there are, by name, for certificates in these folders of Envoy's machine."""
    found: dict[str, dict[str, Any]] = {}
    if tls_dir:
        trusted = {"trusted_ca": _file(tls_dir, "ca.crt"), "watched_directory": {"path": str(tls_dir)}}
        found["mesh_cert"] = {"tls_certificate": _pair(tls_dir)}
        found["mesh_ca"] = {"validation_context": trusted}
    if edge_tls_dir:
        found["edge"] = {"tls_certificate": _pair(edge_tls_dir)}
    return {
        SECRETS[name]: {"resources": [{"@type": f"{_TLS}.Secret", "name": name, **content}]}
        for name, content in found.items()
    }


def _dynamic() -> dict[str, Any]:
    """Listeners and clusters from the control plane; routes and endpoints follow from them."""
    over_ads = {"ads": {}, "resource_api_version": "V3"}
    return {
        "ads_config": {
            "api_type": "GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": True,
            "grpc_services": [{"envoy_grpc": {"cluster_name": "control", "retry_policy": {"retry_back_off": _RETRY}}}],
        },
        "lds_config": over_ads,
        "cds_config": over_ads,
    }


def _cluster(name: str, address: str, identity: str = "") -> dict[str, Any]:
    """A gRPC server that Envoy itself calls; with `identity`, over mTLS with a server of that identity."""
    protocol = {
        "@type": f"type.googleapis.com/{_HTTP}",
        # A peer that is gone without a word is found by a ping.
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "2s"}}
        },
    }
    cluster = {
        "name": name,
        "type": "STATIC" if _is_ip(address) else "STRICT_DNS",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {_HTTP: protocol},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(address)}}]}],
        },
    }
    return {**cluster, "transport_socket": _mtls(identity)} if identity else cluster


def _mtls(identity: str) -> dict[str, Any]:
    uri = {"san_type": "URI", "matcher": {"exact": uri_of(identity)}}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TLS}.UpstreamTlsContext",
            "sni": server_name_of(identity),
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [_secret("mesh_cert")],
                "combined_validation_context": {
                    "default_validation_context": {"match_typed_subject_alt_names": [uri]},
                    "validation_context_sds_secret_config": _secret("mesh_ca"),
                },
            },
        },
    }


def _secret(name: str) -> dict[str, Any]:
    source = {"path": f"./{SECRETS[name]}"}
    return {"name": name, "sds_config": {"path_config_source": source, "resource_api_version": "V3"}}


def _overload() -> dict[str, Any]:
    """Rather refuse some than be killed with all; the shares are those of Envoy's guide for edges."""
    monitors = f"{_TYPES}.extensions.resource_monitors"
    heap, connections = (
        "envoy.resource_monitors.fixed_heap",
        "envoy.resource_monitors.global_downstream_max_connections",
    )

    def beyond(action: str, share: float) -> dict[str, Any]:
        triggers = [{"name": heap, "threshold": {"value": share}}]
        return {"name": f"envoy.overload_actions.{action}", "triggers": triggers}

    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            {
                "name": heap,
                "typed_config": {
                    "@type": f"{monitors}.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": _MAX_HEAP_BYTES,
                },
            },
            {
                "name": connections,
                "typed_config": {
                    "@type": f"{monitors}.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": _MAX_CONNECTIONS,
                },
            },
        ],
        "actions": [
            beyond("shrink_heap", 0.90),
            beyond("stop_accepting_requests", 0.95),
            beyond("stop_accepting_connections", 0.98),
        ],
    }


def _pair(folder: Path) -> dict[str, Any]:
    return {
        "certificate_chain": _file(folder, "tls.crt"),
        "private_key": _file(folder, "tls.key"),
        "watched_directory": {"path": str(folder)},
    }


def _file(folder: Path, name: str) -> dict[str, str]:
    return {"filename": str(folder / name)}


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True
