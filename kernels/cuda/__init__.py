"""CUDA kernels and their launchers.

A kernel is an `x.cu` beside its launcher `x.py`; `module` builds and loads them. Importing this
package loads no CUDA library.
"""
