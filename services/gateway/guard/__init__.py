"""Detection rules for texts, and the filter of a text while it is written: pure rules, which know no request and no
stage. The patterns of secrets and personal data are in `services/runtime/security/`."""
