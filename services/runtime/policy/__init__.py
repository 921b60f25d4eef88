"""Policies against tail latency, one in each file, without gRPC. Callers compose them."""
