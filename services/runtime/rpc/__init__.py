"""The boundary of every service: bytes in and out, authorization, health and reflection behind it."""
