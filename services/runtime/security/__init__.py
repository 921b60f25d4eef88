"""Certificates, and secrets that must not be shown."""
