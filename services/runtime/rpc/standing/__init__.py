"""Calls between two processes of ours as frames on one standing stream of gRPC."""
