"""Certificates, and what must not be shown."""
