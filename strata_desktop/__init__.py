"""Strata Desktop: the window. Runs, and is tested, without a GPU."""
