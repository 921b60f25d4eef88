import grpc
import pytest
from grpc import StatusCode

from hedgerow import Cancelled, Internal, Unavailable
from hedgerow._peer import Peer
from hedgerow._status import from_rpc_error

PEER = Peer("x:1", None)


class ScriptedError(grpc.RpcError):
    """Errors of calls whose status has no details of ours."""

    def __init__(self, code: StatusCode, text: str):
        self._code, self._text = code, text

    def code(self):
        return self._code

    def details(self):
        return self._text

    def trailing_metadata(self):
        return ()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer"),
        (StatusCode.CANCELLED, ""),  # of a server that stops
        (StatusCode.INTERNAL, "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))"),
    ],
)
def test_an_answer_that_is_cut_off_on_its_way_is_a_lost_connection_also_through_a_proxy(code, text):
    error = from_rpc_error(ScriptedError(code, text), Peer("edge:443", None), 1.0, "t")
    assert isinstance(error, Unavailable)
    assert (error.reason, error.trace_id) == ("CONNECTION_LOST", "t")


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (StatusCode.CANCELLED, "Locally cancelled by application!", Cancelled),
        (StatusCode.CANCELLED, "Stream removed (Channel closed!)", Cancelled),
        (StatusCode.INTERNAL, "oh", Internal),
    ],
)
def test_a_call_that_is_cancelled_here_and_a_bug_are_no_lost_connections(code, text, kind):
    assert isinstance(from_rpc_error(ScriptedError(code, text), PEER, 1.0), kind)


@pytest.mark.parametrize(
    ("target", "code", "text", "message"),
    [
        ("x:1", StatusCode.UNAVAILABLE, "errors resolving x:1", "no gateway at x:1: this name cannot be resolved"),
        (
            "x",
            StatusCode.UNAVAILABLE,
            "failed to connect to all addresses",
            "no gateway at x, port 443: the target names no port",
        ),
        (
            "x:1",
            StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; Tls handshake failed: WRONG_VERSION_NUMBER",
            "no connection to the gateway at x:1: the port speaks no TLS",
        ),
        (
            "x:1",
            StatusCode.UNIMPLEMENTED,
            "Method not found!",
            "the server at x:1 is no gateway, or an older one: Method not found!",
        ),
    ],
)
def test_a_target_that_is_no_gateway_is_reported_with_its_error(target, code, text, message):
    assert from_rpc_error(ScriptedError(code, text), Peer(target, None), 1.0).message == message
