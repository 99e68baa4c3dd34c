from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.api.api_rig import ApiRig


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., ApiRig]]:
    """Makes rigs and closes them at the end."""
    rigs: list[ApiRig] = []

    def make(**options: Any) -> ApiRig:
        rigs.append(ApiRig(tmp_path / f"tiny-{len(rigs)}.gguf", **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., ApiRig]) -> ApiRig:
    """A rig with a tiny model loaded."""
    return make_rig()
