from __future__ import annotations

from strata_desktop.viewmodels.memory_colors import PALETTE_LENGTH, SessionColors
from strata_desktop.views.theme import SESSION_COLORS


def test_palette_is_as_long_as_the_themes() -> None:
    assert len(SESSION_COLORS) == PALETTE_LENGTH


def test_a_color_stays_for_the_life_of_its_session() -> None:
    colors = SessionColors(4)
    colors.follow(["s1", "s2", "s3"])
    before = colors.as_dict()
    colors.follow(["s3", "s4", "s1"])
    assert colors.place("s1") == before["s1"]
    assert colors.place("s3") == before["s3"]


def test_a_color_given_back_returns_last() -> None:
    colors = SessionColors(4)
    colors.follow(["s1", "s2"])
    freed = colors.place("s1")
    colors.follow(["s2"])
    colors.follow(["s2", "s3"])
    colors.follow(["s2", "s3", "s4"])
    assert freed not in (colors.place("s3"), colors.place("s4"))
    colors.follow(["s2", "s3", "s4", "s5"])
    assert colors.place("s5") == freed


def test_places_repeat_evenly_when_there_are_more_sessions() -> None:
    colors = SessionColors(3)
    colors.follow([f"s{number}" for number in range(6)])
    assert sorted(colors.as_dict().values()) == [0, 0, 1, 1, 2, 2]
