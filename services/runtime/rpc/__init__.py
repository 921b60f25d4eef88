"""The boundary of every service: bytes in and out, who may call whom, health and reflection behind it."""
