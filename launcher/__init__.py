"""Local meshes for development, tests and benches: processes and their supervisor, replicas, a CA, Envoy's bootstrap.

May import the SDK; the services it starts are processes, never imported. Neither the SDK nor a service imports it.
"""
