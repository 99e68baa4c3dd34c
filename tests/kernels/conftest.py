"""A team of native threads for each level this processor can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels.cpu.library import CpuLibrary, Level, Team, load_library


@pytest.fixture(scope="session")
def library() -> CpuLibrary:
    return load_library()


@pytest.fixture(scope="session", params=list(Level), ids=lambda level: level.name)
def team(request: pytest.FixtureRequest, library: CpuLibrary) -> Iterator[Team]:
    if request.param > library.best_level:
        pytest.skip(f"this processor has no {request.param.name}")
    team = Team(library, 2, level=request.param)
    yield team
    team.close()
