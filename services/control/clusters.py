"""The `Cluster` resource of a service, for gRPC or Envoy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.cluster.v3.outlier_detection_pb2 import OutlierDetection
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.extensions.upstreams.http.v3.http_protocol_options_pb2 import HttpProtocolOptions

from hedgerow.channel import CHANNEL_OPTIONS, connect_timeout_ms, ping_timeout_ms
from hedgerow.identities import server_name_of, uri_of
from services.control.members import identity
from services.control.routes import ads, packed
from services.control.topology import MeshService, Outliers

PROVIDER = "mesh"  # the certificate provider of gRPC's bootstrap
CERTIFICATE, AUTHORITIES = "mesh_cert", "mesh_ca"  # the secrets of Envoy's
_TLS = "envoy.transport_sockets.tls"
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TUNING = dict(CHANNEL_OPTIONS)  # the same keepalive as our own channels
_RING = 1_024, 4_096  # least and largest size; gRPC caps rings at 4,096
_PANIC = 1  # percent: if no endpoint is healthy and not ejected, all are used
_FAILED_PERCENT = 85  # of an endpoint's calls in an interval, where failures in a row are not counted (gRPC)
# Of Envoy's on one connection; for more it opens another. Until a gateway has said how many it takes, Envoy would open
# any number, and a gateway resets those that are too many, again and again, without a word that it refused them. Fewer
# than this are not recommended (RFC 9113, 6.5.2).
_STREAMS = 100
_POLICIES = {"round_robin": Cluster.ROUND_ROBIN, "least_request": Cluster.LEAST_REQUEST}


def for_grpc(name: str, service: MeshService, *, mtls: bool) -> Cluster:
    """gRPC C-core supports round robin and ring hash; `least_request` becomes round robin. It weighs localities
    automatically, and does not count consecutive failures: see `_outliers_of_grpc`."""
    cluster = _cluster(name, service)
    cluster.lb_policy = Cluster.RING_HASH if service.balance == "ring_hash" else Cluster.ROUND_ROBIN
    cluster.outlier_detection.CopyFrom(_outliers_of_grpc(service.outliers))
    if mtls:
        _secure(cluster, UpstreamTlsContext(common_tls_context=_grpc_tls(name, service)))
    return cluster


def for_envoy(name: str, service: MeshService, *, mtls: bool, sds_dir: Path) -> Cluster:
    """Envoy must be configured to speak HTTP/2 to upstreams, to ping them, and to weigh localities."""
    cluster = _cluster(name, service)
    cluster.lb_policy = _POLICIES.get(service.balance, Cluster.RING_HASH)
    cluster.connect_timeout.FromMilliseconds(connect_timeout_ms())
    cluster.common_lb_config.locality_weighted_lb_config.SetInParent()
    cluster.common_lb_config.healthy_panic_threshold.value = _PANIC
    cluster.outlier_detection.CopyFrom(_outliers_of_envoy(service.outliers))
    cluster.typed_extension_protocol_options[_HTTP].CopyFrom(packed(_http2()))
    limits = cluster.circuit_breakers.thresholds[0]
    limits.max_pending_requests.value = service.limits.pending
    limits.max_connections.value = service.limits.connections
    limits.max_retries.value = service.limits.retries
    if mtls:
        server = server_name_of(identity(name, service))
        _secure(cluster, UpstreamTlsContext(common_tls_context=_envoy_tls(name, service, sds_dir), sni=server))
    return cluster


def health_cluster(name: str) -> str:
    """The name of the cluster for health checks of a service; no service of a topology can have it."""
    return f"{name}_health"


def for_health(cluster: Cluster, checks: int) -> Cluster:
    """The same endpoints as `cluster`, for health checks from outside: with its own connections and thresholds, so that
    strangers take no slots of callers, and their requests eject no endpoint."""
    own = Cluster()
    own.CopyFrom(cluster)
    own.name = health_cluster(cluster.name)
    own.ClearField("outlier_detection")
    limits = own.circuit_breakers.thresholds[0]
    for limit in (limits.max_requests, limits.max_pending_requests, limits.max_connections):
        limit.value = checks
    return own


def http_cluster(name: str) -> str:
    """The name of the cluster for a service's HTTP; no service of a topology can have it."""
    return f"{name}_http"


def for_http(cluster: Cluster) -> Cluster:
    """The same members as `cluster`, where they serve HTTP/1.1."""
    own, options = Cluster(), HttpProtocolOptions()
    own.CopyFrom(cluster)
    own.name = own.eds_cluster_config.service_name = http_cluster(cluster.name)
    options.explicit_http_config.http_protocol_options.SetInParent()
    own.typed_extension_protocol_options[_HTTP].CopyFrom(packed(options))
    context = UpstreamTlsContext()
    if own.transport_socket.typed_config.Unpack(context):
        context.common_tls_context.alpn_protocols[:] = ["http/1.1"]
        own.transport_socket.typed_config.CopyFrom(packed(context))
    return own


def _cluster(name: str, service: MeshService) -> Cluster:
    """Settings that gRPC and Envoy both understand."""
    cluster = Cluster(name=name, type="EDS", eds_cluster_config={"eds_config": ads(), "service_name": name})
    cluster.circuit_breakers.thresholds.add(max_requests={"value": service.limits.requests})
    if service.balance == "ring_hash":
        least, largest = _RING
        cluster.ring_hash_lb_config.minimum_ring_size.value = least
        cluster.ring_hash_lb_config.maximum_ring_size.value = largest
    return cluster


def _outliers(outliers: Outliers) -> OutlierDetection:
    detection = OutlierDetection(
        max_ejection_percent={"value": outliers.max_ejected_percent}, enforcing_success_rate={"value": 0}
    )
    detection.interval.FromMilliseconds(outliers.interval_ms)
    detection.base_ejection_time.FromMilliseconds(outliers.ejection_ms)
    detection.max_ejection_time.FromMilliseconds(max(300_000, outliers.ejection_ms))
    return detection


def _outliers_of_grpc(outliers: Outliers) -> OutlierDetection:
    """gRPC knows percentages of failures only (gRFC A50): an endpoint that fails most of at least so many calls in an
    interval is out, as long as it is not the only one."""
    detection = _outliers(outliers)
    detection.enforcing_failure_percentage.value = 100 if outliers.consecutive_failures else 0
    detection.failure_percentage_threshold.value = _FAILED_PERCENT
    detection.failure_percentage_minimum_hosts.value = 2
    detection.failure_percentage_request_volume.value = max(1, outliers.consecutive_failures)
    return detection


def _outliers_of_envoy(outliers: Outliers) -> OutlierDetection:
    """Failures that Envoy sees itself: connections that fail, and streams that are reset. No status that a gateway
    answers ejects it: DEADLINE_EXCEEDED is up to the caller's deadline, UNAVAILABLE mostly to a model, and a caller
    that causes five of them in a row could put gateways out of service for all."""
    detection = _outliers(outliers)
    detection.split_external_local_origin_errors = True
    detection.enforcing_consecutive_5xx.value = 0
    detection.enforcing_consecutive_gateway_failure.value = 0
    detection.enforcing_local_origin_success_rate.value = 0
    detection.consecutive_local_origin_failure.value = max(1, outliers.consecutive_failures)
    detection.enforcing_consecutive_local_origin_failure.value = 100 if outliers.consecutive_failures else 0
    return detection


def _http2() -> HttpProtocolOptions:
    options = HttpProtocolOptions()
    http2 = options.explicit_http_config.http2_protocol_options
    http2.max_concurrent_streams.value = _STREAMS
    keepalive = http2.connection_keepalive
    keepalive.interval.FromMilliseconds(_TUNING["grpc.keepalive_time_ms"])
    keepalive.timeout.FromMilliseconds(ping_timeout_ms())
    return options


def _secure(cluster: Cluster, context: UpstreamTlsContext) -> None:
    cluster.transport_socket.name = _TLS
    cluster.transport_socket.typed_config.CopyFrom(packed(context))


def _grpc_tls(name: str, service: MeshService) -> dict[str, Any]:
    provider, peer = {"instance_name": PROVIDER}, identity(name, service)
    validation = {
        "ca_certificate_provider_instance": provider,
        "match_subject_alt_names": [{"exact": uri_of(peer)}, {"exact": server_name_of(peer)}],  # either one will do
    }
    return {"tls_certificate_provider_instance": provider, "validation_context": validation}


def _envoy_tls(name: str, service: MeshService, sds_dir: Path) -> dict[str, Any]:
    server = {"san_type": "URI", "matcher": {"exact": uri_of(identity(name, service))}}
    return {
        "alpn_protocols": ["h2"],
        "tls_certificate_sds_secret_configs": [_secret(CERTIFICATE, f"{sds_dir}/sds_cert.yaml")],
        "combined_validation_context": {
            "default_validation_context": {"match_typed_subject_alt_names": [server]},
            "validation_context_sds_secret_config": _secret(AUTHORITIES, f"{sds_dir}/sds_ca.yaml"),
        },
    }


def _secret(name: str, file: str) -> dict[str, Any]:
    source = {"path": file}  # with a `/` in it always: Envoy watches its folder
    return {"name": name, "sds_config": {"path_config_source": source, "resource_api_version": "V3"}}
