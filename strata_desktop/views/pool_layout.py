"""Where each tile of the pool map lies: the largest tiles that fit, from 6 chunks to 4,096.

Pure arithmetic in device-independent pixels; `views.pool_map` draws.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_PITCH_PX = 7
MAX_PITCH_PX = 40
MAX_TILE_WIDTH_PX = 120
MAX_TILE_HEIGHT_PX = 88
FEW_TILES = 16
"""Up to this many may grow to share all the room."""
FEW_GAP_PX = 10
FEW_TILE_WIDTH_PX = 340
FEW_TILE_HEIGHT_PX = 160
LABEL_HEIGHT_PX = 16
"""Space above a tile for its number, where tiles are large enough to carry one."""
LABELLED_WIDTH_PX = 64
LABELLED_HEIGHT_PX = 46


@dataclass(frozen=True, kw_only=True, slots=True)
class TileGrid:
    """Tiles in rows, left to right.

    Attributes:
        n_tiles: tiles in all.
        n_columns: tiles a row.
        pitch_x, pitch_y: distance from one tile to the next, gap included.
        gap: space between tiles.
        label_height: space above each tile for its number, 0 = no numbers.
    """

    n_tiles: int
    n_columns: int
    pitch_x: int
    pitch_y: int
    gap: int
    label_height: int

    @classmethod
    def fit(cls, n_tiles: int, *, width: int, height: int) -> TileGrid:
        """Return the grid with the largest tiles that fit; too many make it taller than `height`.

        Args:
            n_tiles: chunks of the pool.
            width: room there is.
            height: room there is, too.
        """
        width = max(width, MIN_PITCH_PX)
        if n_tiles <= FEW_TILES and (few := cls._fit_few(n_tiles, width, height)) is not None:
            return few
        pitch = MIN_PITCH_PX
        for wanted in range(MAX_PITCH_PX, MIN_PITCH_PX, -1):
            n_columns = width // wanted
            if n_columns and -(-n_tiles // n_columns) * wanted <= height:
                pitch = wanted
                break
        n_rows = max(1, -(-n_tiles // (width // pitch)))
        n_columns = max(1, -(-n_tiles // n_rows))
        pitch_x = min(width // n_columns, MAX_TILE_WIDTH_PX)
        pitch_y = max(pitch, min(height // n_rows, MAX_TILE_HEIGHT_PX, round(1.25 * pitch_x)))
        gap = 1 if pitch <= 10 else 2 if pitch <= 20 else 3
        has_labels = pitch_x >= LABELLED_WIDTH_PX and pitch_y >= LABELLED_HEIGHT_PX
        return cls(
            n_tiles=n_tiles,
            n_columns=n_columns,
            pitch_x=pitch_x,
            pitch_y=pitch_y,
            gap=gap + 7 if has_labels else gap,
            label_height=LABEL_HEIGHT_PX if has_labels else 0,
        )

    @classmethod
    def _fit_few(cls, n_tiles: int, width: int, height: int) -> TileGrid | None:
        """Return the grid whose numbered tiles cover the most, None where none has room."""
        best: TileGrid | None = None
        for n_columns in range(1, n_tiles + 1):
            pitch_x = min((width + FEW_GAP_PX) // n_columns, FEW_TILE_WIDTH_PX)
            pitch_y = min(height // -(-n_tiles // n_columns), FEW_TILE_HEIGHT_PX, pitch_x)
            if pitch_x < LABELLED_WIDTH_PX or pitch_y < LABELLED_HEIGHT_PX:
                continue
            if best is None or pitch_x * pitch_y > best.pitch_x * best.pitch_y:
                best = cls(
                    n_tiles=n_tiles,
                    n_columns=n_columns,
                    pitch_x=pitch_x,
                    pitch_y=pitch_y,
                    gap=FEW_GAP_PX,
                    label_height=LABEL_HEIGHT_PX,
                )
        return best

    @property
    def height(self) -> int:
        """Height all rows need."""
        return -(-self.n_tiles // self.n_columns) * self.pitch_y

    def cell(self, number: int) -> tuple[int, int, int, int]:
        """Return x, y, width, height of a tile with its label, without the gap."""
        row, column = divmod(number, self.n_columns)
        return (
            column * self.pitch_x,
            row * self.pitch_y,
            self.pitch_x - self.gap,
            self.pitch_y - self.gap,
        )

    def tile(self, number: int) -> tuple[int, int, int, int]:
        """Return x, y, width, height of the tile itself."""
        x, y, width, height = self.cell(number)
        return x, y + self.label_height, width, height - self.label_height

    def tile_at(self, x: float, y: float) -> int | None:
        """Return the tile under a point, None over a gap or outside."""
        if x < 0 or y < 0:
            return None
        column, dx = divmod(int(x), self.pitch_x)
        row, dy = divmod(int(y), self.pitch_y)
        if column >= self.n_columns or dx >= self.pitch_x - self.gap:
            return None
        if dy >= self.pitch_y - self.gap:
            return None
        number = row * self.n_columns + column
        return number if number < self.n_tiles else None

    def tiles_in(self, x: int, y: int, width: int, height: int) -> list[int]:
        """Return the tiles that a rectangle touches, in order."""
        first_column = max(0, x // self.pitch_x)
        last_column = min(self.n_columns - 1, (x + width - 1) // self.pitch_x)
        first_row = max(0, y // self.pitch_y)
        last_row = (y + height - 1) // self.pitch_y
        return [
            number
            for row in range(first_row, last_row + 1)
            for number in range(
                row * self.n_columns + first_column, row * self.n_columns + last_column + 1
            )
            if number < self.n_tiles
        ]
