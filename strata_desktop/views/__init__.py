"""Widgets: how things are drawn, and no decision but that."""
