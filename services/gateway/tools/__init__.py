"""The tools that the gateway calls itself: where they come from, what stands before each, which tenant may use them.

source.py         the interface of a source; sources that are services of `hedgerow.tool.v1`
mcp_source.py     sources that are MCP servers; imported where one is configured
listing.py        the list of a source, checked
source_client.py  one source with its lists, its limiter, its tools' breakers and reusable results
toolbox.py        all sources, and the tools that a request may use
"""
