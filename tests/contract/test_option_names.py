"""An option has one name: in the SDK, on the command line, in the `hedgerow` object by HTTP and as a header."""

from __future__ import annotations

import inspect

from hedgerow import Options, Request
from hedgerow.cli.ask import ask
from services.gateway.http import request_options

SDK = set(Options.__annotations__)
# By HTTP alone: the clock of a stream that the SDK does not have, and what a stream of OpenAI's form leaves out else.
# `whole` is `truncation: disabled`; `guard` has another form in JSON.
HTTP_ALONE = {"silence_ms", "findings", "whole"}
# On the command line alone: how the answer is shown, who is called, and what makes up one option of the SDK.
SHOWN = {"stream", "pause_ms", "as_json", "waterfall"}
REACHED = {"gateway", "api_key", "tls", "ca_file", "tls_dir", "plaintext_key"}
PARTS = {"question", "image", "tool", "mcp", "collection", "agent"}


def test_an_option_by_http_has_the_name_that_it_has_in_the_sdk() -> None:
    assert request_options._OPTIONS - HTTP_ALONE <= SDK


def test_an_option_of_the_command_line_has_the_name_that_it_has_in_the_sdk() -> None:
    named = set(inspect.signature(ask).parameters)
    assert named - SHOWN - REACHED - PARTS <= set(Request.__annotations__)
