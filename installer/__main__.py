"""Entry of `python -m installer`; it only looks at the Python version before the rest is read."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this is the place that tells people so
    sys.exit(
        "Strata Desktop needs Python 3.11 or newer, and this is Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}. Install a newer one and run the same "
        "command with it, for example: python3.12 -m installer run"
    )

from installer.arguments import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
