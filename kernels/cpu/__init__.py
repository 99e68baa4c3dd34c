"""The C kernels and the loader of their library."""
