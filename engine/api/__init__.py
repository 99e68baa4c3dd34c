"""The local HTTP API."""
