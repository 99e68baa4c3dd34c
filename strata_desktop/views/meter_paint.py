"""Colours and figures that the drawn widgets of the panels share.

Everything comes from the theme's tokens; it holds no state but mixed colours.
"""

from __future__ import annotations

from PySide6.QtGui import QColor, QFont
from PySide6.QtWidgets import QWidget

from strata_desktop.views.theme import colors, session_color

HELD_PART = 0.28
"""How much of the session's colour a held but unused cell shows."""
DIM_PART = 0.22
"""How much of its colour is left to a tile that is not highlighted."""


def mix(front: QColor, back: QColor, part: float) -> QColor:
    """Return `part` of `front` over `back`, opaque."""
    return QColor(
        round(front.red() * part + back.red() * (1 - part)),
        round(front.green() * part + back.green() * (1 - part)),
        round(front.blue() * part + back.blue() * (1 - part)),
    )


def tabular(font: QFont, *, height_px: int | None = None, is_strong: bool = False) -> QFont:
    """Return the font with figures of equal width.

    Args:
        font: the font to start from.
        height_px: height in device-independent pixels; None = as it is.
        is_strong: whether it is semi-bold.
    """
    made = QFont(font)
    made.setFeature(QFont.Tag("tnum"), 1)
    if height_px is not None:
        made.setPixelSize(height_px)
    if is_strong:
        made.setWeight(QFont.Weight.DemiBold)
    return made


class TilePaints:
    """Colours of the map and the bar, mixed once a theme.

    Attributes:
        free_outline: around free tiles.
        free: behind the free part of a bar.
        label: numbers above tiles.
        mark: around the tile under the pointer.
        focus: around the tile the keys have reached.
    """

    def __init__(self, widget: QWidget) -> None:
        c = colors(widget)
        self._surface = QColor(c.raised)
        self.free_outline = QColor(c.border_strong)
        self.free = QColor(c.sunken)
        self.label = QColor(c.text_muted)
        self.mark = QColor(c.text)
        self.focus = QColor(c.text)
        self._pairs: dict[tuple[int, bool], tuple[QColor, QColor]] = {}

    def pair(self, place: int, *, is_dim: bool) -> tuple[QColor, QColor]:
        """Return the colours of held and of used cells for a palette place."""
        key = (place, is_dim)
        if key not in self._pairs:
            used = session_color(place)
            if is_dim:
                used = mix(used, self._surface, DIM_PART)
            self._pairs[key] = mix(used, self._surface, HELD_PART), used
        return self._pairs[key]
