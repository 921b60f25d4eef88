"""Detection rules for texts, and the filter of a text while it is written: pure rules, which know no request and no
stage. The patterns of secrets and personal data are in `services/runtime/security/`.

The rules are applied to requests in `answer/stages/guard.py`, to tool results in `answer/stages/tool_call.py`, to
answers in `answer/stream_filter.py`, and to embeddings and moderations in `http/endpoints/`.
"""
