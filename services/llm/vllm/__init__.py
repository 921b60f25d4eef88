"""vLLM behind the seam: from our settings and requests to its own, its answers, and what it lacks.

The plugin inside vLLM's own processes is `services/llm/vllm_plugin.py`, the name that installed environments have in
their entry points.
"""
