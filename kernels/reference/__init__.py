"""NumPy definitions of every op: slow, plain, the judge of the fast ones."""
