from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from schedopt import Problem, Schedule, classic
from schedopt.bundled import load_bundled
from schedopt.formats import plot_rows
from schedopt.formats.palette import OVER_CAPACITY_COLOUR, shade
from schedopt.formats.plot import SUFFIXES, draw, plot
from schedopt.formats.view import View
from schedopt.graph import build_graph
from schedopt.op import Resource
from schedopt.schedule import TimedOp
from tests.schedules import schedule_of, two_by_two


def words(figure: Figure) -> list[str]:
    """All text of a figure but its axes: the labels of ops, figures, headings, legend."""
    found = [text.get_text() for text in figure.texts]
    found += [text.get_text() for axes in figure.axes for text in axes.texts]
    return found + [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def boxes(figure: Figure) -> list[tuple[float, float, int, str]]:
    """Start, end, row and colour of each op."""
    (found,) = (c for c in figure.axes[0].collections if isinstance(c, PolyCollection))
    corners = [path.vertices for path in found.get_paths()]
    colours = [to_hex(colour).upper() for colour in found.get_facecolors()]  # type: ignore[attr-defined]
    return [
        (min(c[:, 0]), max(c[:, 0]), int(min(c[:, 1])), colour)
        for c, colour in zip(corners, colours, strict=True)
    ]


def lines(figure: Figure) -> list[list[tuple[float, float]]]:
    """The lines of transfers."""
    (found,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    return [[tuple(point) for point in line] for line in found.get_segments()]


def test_every_op_is_a_box_at_its_times_in_the_colour_of_its_kind() -> None:
    schedule = two_by_two()
    expected = [
        (t.start, t.end, device, shade(t.op.kind, odd=t.op.microbatch == 1).background)
        for device, ops in schedule.by_device.items()
        for t in ops
    ]
    assert boxes(draw(schedule)) == expected


def test_a_picture_says_what_it_shows() -> None:
    problem = Problem.uniform(name="small", devices=2, microbatches=2, time_unit="ms")
    orders = two_by_two().orders
    info = {"bound": 6, "gap": 1 / 7}
    schedule = Schedule.from_order(build_graph(problem), orders, name="by hand", info=info)
    found = words(draw(schedule))
    assert "by hand for small" in found
    assert "makespan 7 ms, bound 6 ms, gap 14.29 %" in found
    assert found.count("14.3 %") == 2  # idle share of each device
    assert {"F  forward", "transfer", "memory in use"} <= set(found)


def test_only_ops_with_room_for_the_longest_microbatch_carry_it() -> None:
    problem = Problem.uniform(devices=1, microbatches=11, F=100, B=1, W=100)
    order = " ".join(f"0F{i} 0B{i} 0W{i}" for i in range(11))
    found = [label.get_text() for label in draw(schedule_of(problem, order)).axes[0].texts]
    assert [found.count(str(i)) for i in range(11)] == [2] * 11  # on F and W, not on B


def test_transfers_join_ops_of_different_devices() -> None:
    schedule = two_by_two()
    drawn = lines(draw(schedule))
    assert len(drawn) == 4  # an activation and a gradient for each microbatch
    assert sorted([x for x, _ in line] for line in drawn) == [[1, 1], [2, 3], [3, 3], [5, 5]]
    assert lines(draw(schedule, transfers=False)) == []


def test_too_many_transfers_are_drawn_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedopt.formats.plot.MOST_TRANSFERS", 3)
    assert lines(draw(two_by_two())) == []
    assert "transfer" not in words(draw(two_by_two()))
    assert len(lines(draw(two_by_two(), transfers=True))) == 4


def test_a_view_shows_its_time_and_devices_only() -> None:
    schedule = two_by_two()
    figure = draw(
        schedule, view=View.of(schedule, start=Fraction(2), end=Fraction(9, 2), devices=[1])
    )
    assert [box[:3] for box in boxes(figure)] == [(2, 3, 0), (3, 4, 0), (4, 4.5, 0)]
    assert figure.axes[0].get_xlim() == (2, 4.5)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["1"]
    assert "0.0 %" in words(figure)
    shown = "shown: 2 to 4.5 units, with its idle time and peak"
    assert any(shown in text for text in words(figure))


def test_memory_above_the_capacity_is_marked() -> None:
    def marked(capacity: int) -> bool:
        figure = draw(two_by_two(capacity=capacity))
        colours = [to_hex(c) for area in figure.axes[1].collections for c in area.get_facecolor()]
        found = OVER_CAPACITY_COLOUR.lower() in colours
        assert found == ("over the capacity" in words(figure))
        return found

    assert marked(1)
    assert not marked(2)
    assert "200.0 %" in words(draw(two_by_two(capacity=1)))


def test_the_peak_of_a_view_is_that_of_its_time() -> None:
    schedule = two_by_two(capacity=1)
    view = View.of(schedule, start=Fraction(6), end=Fraction(7))
    found = words(draw(schedule, view=view))
    assert found.count("100.0 %") == 2
    assert "over the capacity" not in found


def test_with_many_ops_a_pixel_is_the_mean_of_what_happens_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plot_rows, "MOST_BOXES", 5)
    figure = draw(two_by_two())
    (image,) = figure.axes[0].images
    row = np.asarray(image.get_array())[5]
    looks = [shade("F").background, shade("F", odd=True).background, "#FFFFFF"]
    looks += [shade(kind, odd=odd).background for odd in (False, True) for kind in ("B", "W")]
    middles = [row[round((place + 0.5) / 7 * len(row))][:3] for place in range(7)]
    assert [to_hex(middle).upper() for middle in middles] == looks
    mean = np.mean([to_rgb(look) for look in looks], axis=0)
    assert row[:, :3].mean(axis=0) == pytest.approx(mean)  # nothing is lost at the edges


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_schedule_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    schedule = two_by_two(capacity=2)
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        plot(schedule, path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[suffix])


def test_a_picture_has_the_size_that_is_asked_for(tmp_path: Path) -> None:
    plot(two_by_two(), tmp_path / "a.png", width=6, height=4, dpi=100)
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (600, 400)


def test_more_devices_make_a_higher_picture() -> None:
    def height(devices: int) -> float:
        problem = Problem.uniform(devices=devices, microbatches=2)
        return float(draw(classic.gpipe(problem)).get_figheight())

    heights = [height(devices) for devices in (2, 4, 8, 32)]
    assert all(low < high for low, high in pairwise(heights))


def test_another_ending_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape("must end in one of .svg, .png, .pdf")):
        plot(two_by_two(), tmp_path / "a.gif")


def test_a_broken_schedule_can_be_drawn() -> None:
    schedule = two_by_two()
    ops = schedule.by_device[0]
    timeline = {Resource("compute", 0): (ops[0], TimedOp(ops[1].op, 0, 3))}
    assert len(boxes(draw(Schedule(schedule.problem, timeline, schedule.resolution)))) == 2


@pytest.mark.slow
def test_a_plot_of_24576_ops_has_few_marks_and_less_than_two_megabytes(tmp_path: Path) -> None:
    schedule = classic.zb_h1(load_bundled("zb-28.3b-p32-m256"))
    figure = draw(schedule)
    (image,) = figure.axes[0].images
    assert np.asarray(image.get_array()).shape[0] % 32 == 0
    assert not [c for c in figure.axes[0].collections if isinstance(c, PolyCollection)]
    assert lines(figure) == []  # 15872 transfers are too many
    for suffix in SUFFIXES:
        plot(schedule, tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").stat().st_size < 2_000_000
