"""Talking to the engine: starting or attaching, HTTP calls, event streams."""
