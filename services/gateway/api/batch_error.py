"""What a caller may know of an error that ends a part of a call: an item of a batch, or a turn of a conversation."""

from __future__ import annotations

from google.rpc import code_pb2, error_details_pb2

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.runtime.rpc.boundary import to_status


def batch_error(error: Exception, trace_id: str) -> pb.BatchError:
    """The same facts that the status of a whole call would carry. `trace_id`: of the call."""
    status = to_status(error)
    told = pb.BatchError(code=code_pb2.Code.Name(status.code), message=status.message, trace_id=trace_id)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status.details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    told.reason = info.reason
    told.metadata.update(info.metadata)
    if retry.HasField("retry_delay"):
        told.retry_delay.CopyFrom(retry.retry_delay)
    return told
