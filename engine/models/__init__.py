"""One file an architecture, written over the ops dictionary of `engine.ops`."""
