"""Classic schedules: published patterns, built for a problem and timed with its real costs.

Each function takes a `Problem` and returns a `Schedule` of that name. It raises
`schedopt.errors.NotApplicableError`, saying what the pattern needs, where the placement does not
fit. Patterns do not look at the capacity of the devices unless their description says so:
`schedopt.memory.peak_memory` tells what they need.
"""

from __future__ import annotations

from collections.abc import Callable

from schedopt.classic.dualpipe import dualpipe_v
from schedopt.classic.gpipe import gpipe
from schedopt.classic.interleaved import interleaved
from schedopt.classic.one_f_one_b import one_f_one_b
from schedopt.classic.v_shape import v_half, v_min, zb_v
from schedopt.classic.wave import wave
from schedopt.classic.zero_bubble import zb_h1, zb_h2
from schedopt.problem import Problem
from schedopt.schedule import Schedule

CLASSIC: dict[str, Callable[[Problem], Schedule]] = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "Interleaved 1F1B": interleaved,
    "ZB-H1": zb_h1,
    "ZB-H2": zb_h2,
    "ZB-V": zb_v,
    "V-Half": v_half,
    "V-Min": v_min,
    "DualPipeV": dualpipe_v,
    "Wave": wave,
}
"""Every classic schedule by its display name."""

__all__ = [
    "CLASSIC",
    "dualpipe_v",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "v_half",
    "v_min",
    "wave",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
