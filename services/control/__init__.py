"""The control plane: from an operator's topology to what gRPC clients and Envoy get by xDS.

topology.py           the shape of the operator's file, which `topology_file` follows
mesh.py               the topology in force, with the `health` and the addresses (`members`) of endpoints
snapshot.py           its rendering: `clusters`, `localities`, `routes`, and the edge's in `edge*`
ads.py                the streams of clients, each a `discovery_stream`
"""
