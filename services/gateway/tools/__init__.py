"""The tools that the gateway calls itself: where they come from, what stands before each, who may use them.

source.py       the one shape of whoever has tools
service.py      services of `hedgerow.tool.v1`
mcp_source.py   MCP servers; imported where one is configured
listing.py      what a source lists, checked
shelf.py        one source with its lists, its limiter and its tools' breakers
toolbox.py      all of them, and what a request may have of them
"""
