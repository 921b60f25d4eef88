"""Whether a conversation that is longer than its model's context loses turns."""

from __future__ import annotations

from hedgerow.gateway.v1 import gateway_pb2 as pb


def is_whole(policy: pb.PromptPolicy, usual: bool) -> bool:
    """Whether it goes to the model as it is: as the request says, or as `usual`."""
    if policy.truncation:
        return policy.truncation == pb.TRUNCATION_DISABLED
    return policy.whole or usual
