"""The engine: reads model files, plans steps, computes them and serves an HTTP API. No Qt here."""

__version__ = "0.1.0"
