"""CUDA kernels and their launchers (none yet)."""
