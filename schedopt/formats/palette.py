"""The one place that gives each kind of op its colour and its letter.

The colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with every
common form of colour blindness can tell apart. A kind has the same colour in every picture. Those
of the causes of idle time differ from each other by as much, seen with any of these.
"""

from __future__ import annotations

from typing import NamedTuple

KIND_COLOURS = {
    "F": "#56B4E9",  # sky blue
    "B": "#E69F00",  # orange
    "W": "#009E73",  # bluish green
    "BW": "#CC79A7",  # reddish purple
    "R": "#F0E442",  # yellow
    "SF": "#C8F0C8",  # pale green
    "SB": "#303030",  # dark grey
    "RED": "#2800A0",  # indigo
    "TIE": "#500050",  # plum
    "OPT": "#780000",  # maroon
}
"""Colour of each kind of op."""

KIND_NAMES_OF_CHROME = {
    "F": "thread_state_runnable",
    "B": "thread_state_iowait",
    "W": "thread_state_running",
    "BW": "thread_state_uninterruptible",
    "R": "yellow",
    "SF": "good",
    "SB": "grey",
    "RED": "rail_animation",
    "TIE": "rail_idle",
    "OPT": "terrible",
}
"""The colours nearest to these that chrome://tracing has; it knows no others."""

KIND_LETTERS = {
    "F": "F",
    "B": "B",
    "W": "W",
    "BW": "X",
    "R": "R",
    "SF": ">",
    "SB": "<",
    "RED": "D",
    "TIE": "T",
    "OPT": "O",
}
"""One letter for each kind of op, where there is no colour."""

MEMORY_COLOUR = "#0072B2"  # blue
OVER_CAPACITY_COLOUR = "#D55E00"  # vermillion
IDLE_COLOUR = "#808080"
TRANSFER_COLOUR = "#4D4D4D"
CAPACITY_COLOUR = "#000000"

CAUSE_COLOURS = {
    "fill": "#2E2A66",  # indigo
    "drain": "#A59DDA",  # lavender
    "imbalance": "#E8D486",  # sand
    "transfer": "#A5243D",  # wine
    "memory": MEMORY_COLOUR,
    "order": "#7A7526",  # olive
    "late": "#DADADA",  # light grey
}
"""Colour of each cause of idle time (`schedopt.idle.CAUSES`)."""

_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)


class Shade(NamedTuple):
    """Background and text colour of one op."""

    background: str
    text: str


def shade(kind: str, *, chunk: int = 0, chunks: int = 1, odd: bool = False) -> Shade:
    """Shade of a kind's colour.

    Parameters
    ----------
    kind
        Kind of op; an unknown one is grey.
    chunk, chunks
        Which of the stages on its device the op belongs to: later ones are darker.
    odd
        Odd microbatches are a little lighter, so that neighbours can be told apart.
    """
    colour = _parse(KIND_COLOURS.get(kind, IDLE_COLOUR))
    if chunks > 1:
        colour = _mix(colour, _BLACK, 0.45 * chunk / (chunks - 1))
    if odd:
        colour = _mix(colour, _WHITE, 0.3)
    text = "#000000" if _luminance(colour) > 0.18 else "#FFFFFF"
    return Shade("#" + "".join(f"{part:02X}" for part in colour), text)


def _parse(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _mix(colour: tuple[int, ...], other: tuple[int, ...], share: float) -> tuple[int, ...]:
    pairs = zip(colour, other, strict=True)
    return tuple(round(a * (1 - share) + b * share) for a, b in pairs)


def _luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance as WCAG 2 defines it; black and white contrast equally at 0.18."""

    def linear(part: int) -> float:
        value = part / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
