"""Icons: the SVG files of `resources/icons`, tinted at run time, and buttons that wear them."""

from __future__ import annotations

from importlib.resources import files

from PySide6.QtCore import QByteArray, QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QToolButton, QWidget

from strata_desktop.views.theme import colors

RATIOS = (1.0, 2.0)
"""Screen scales drawn for exactly; Qt scales down for those between."""


def svg_pixmap(name: str, color: str, height_px: int, ratio: float = 1.0) -> QPixmap:
    """Draw an icon.

    Args:
        name: file stem in `resources/icons`.
        color: what `currentColor` becomes, #rrggbb.
        height_px: side in device-independent pixels.
        ratio: device pixels per device-independent pixel.
    """
    source = files("resources").joinpath("icons", f"{name}.svg").read_text(encoding="utf-8")
    renderer = QSvgRenderer(QByteArray(source.replace("currentColor", color).encode()))
    side = round(height_px * ratio)
    pixmap = QPixmap(side, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    renderer.render(painter, QRectF(0, 0, side, side))
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


def icon(name: str, color: str, disabled_color: str | None = None, *, side_px: int = 20) -> QIcon:
    """Return an icon in one colour, sharp at `side_px` on usual screens."""
    made = QIcon()
    for ratio in RATIOS:
        made.addPixmap(svg_pixmap(name, color, side_px, ratio))
        if disabled_color:
            made.addPixmap(svg_pixmap(name, disabled_color, side_px, ratio), QIcon.Mode.Disabled)
    return made


def app_icon() -> QIcon:
    """Return the program's own icon."""
    made = QIcon()
    for side in (16, 24, 32, 48, 64, 128, 256):
        made.addPixmap(svg_pixmap("app", "#000000", side))
    return made


class IconButton(QToolButton):
    """A flat button with an icon; its name is tooltip and accessible name.

    The icon takes the colour named by `tint` (a field of `Colors`) and follows the theme.
    """

    def __init__(
        self,
        name: str,
        label: str,
        parent: QWidget | None = None,
        *,
        tint: str = "text_muted",
        side_px: int = 18,
    ) -> None:
        super().__init__(parent)
        self._name = name
        self._tint = tint
        self._worn = ("", "")
        self.setProperty("kind", "icon")
        self.setIconSize(QSize(side_px, side_px))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.set_label(label)
        self._tint_icon()

    def set_label(self, label: str) -> None:
        """Name the button for eyes (tooltip) and screen readers alike."""
        self.setToolTip(label)
        self.setAccessibleName(label)

    def set_icon(self, name: str) -> None:
        """Wear another icon."""
        self._name = name
        self._tint_icon()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        if event.type() == QEvent.Type.PaletteChange:
            self._tint_icon()
        super().changeEvent(event)

    def _tint_icon(self) -> None:
        shades = colors(self)
        # Qt announces one change of theme several times.
        wanted = (self._name, getattr(shades, self._tint))
        if wanted != self._worn:
            self._worn = wanted
            side_px = self.iconSize().width()
            self.setIcon(icon(*wanted, shades.border_strong, side_px=side_px))
