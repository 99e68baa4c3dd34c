"""All state that views show, in QtCore only."""
