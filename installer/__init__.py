"""Sets up this checkout and starts it, with the standard library alone: `python -m installer`.

It knows environments, packages and files; it leaves everything the program does to the program.
"""
