"""The page in a real browser, as it is used: nothing here looks at how the page is made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from schedopt import Problem, Schedule, classic
from schedopt.binding import binding
from schedopt.bundled import load_bundled
from schedopt.formats.html import report
from schedopt.formats.palette import shade
from schedopt.op import Op, Resource

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Position

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser of this machine without a window."""
    driver = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    path = os.environ.get("CHROME") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is found")
    with driver.sync_playwright() as playwright:
        # as root, in a container, a browser has no sandbox; the page is our own
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open the page of schedules; in the end nothing was complained about or asked for."""
    complaints: list[str] = []
    asked: list[str] = []

    def open_page(*schedules: Schedule, dark: bool = False) -> Page:
        file = tmp_path / "report.html"
        file.write_text(report(schedules), encoding="utf-8")
        page = browser.new_page(
            viewport={"width": 1300, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.locator(".overlay").first.wait_for()
        return page

    yield open_page
    assert complaints == []
    assert [url for url in asked if not url.startswith("file:")] == []
    assert len(asked) == 1
    for context in browser.contexts:
        context.close()


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return classic.zb_h1(load_bundled("zb-1.5b-p8-m24"))


def point_of(page: Page, schedule: Schedule, op: Op) -> tuple[float, float]:
    """Where an op is, seen by a person: by the axis and the rows of a chart that shows all."""
    page.evaluate("scrollTo(0, 0)")
    box = page.locator(".overlay").first.bounding_box()
    assert box is not None
    left, right, top, row = 58, 66, 24, 26
    device = schedule.problem.device_of[op.stage]
    timed = next(timed for timed in schedule.by_device[device] if timed.op == op)
    middle = float((timed.start + timed.end) / 2 * schedule.resolution / schedule.makespan)
    x = box["x"] + left + middle * (box["width"] - left - right)
    return x, box["y"] + top + (device + 0.5) * row


def colours(page: Page) -> set[tuple[int, ...]]:
    """Colours that stand out in a screenshot of the first chart."""
    with Image.open(BytesIO(page.locator(".chart").first.screenshot())) as picture:
        found = picture.convert("RGB").getcolors(1 << 24)
    assert found is not None
    return {colour for count, colour in found if count > 200}  # type: ignore[misc]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def test_a_picture_of_ops_is_there_in_light_and_dark(
    opened: Callable[..., Page], schedule: Schedule
) -> None:
    page = opened(schedule)
    for background in ("#FFFFFF", "#171C22"):
        kinds = {rgb(shade(kind).background) for kind in "FBW"}
        assert {*kinds, rgb(background)} <= colours(page)
        page.emulate_media(color_scheme="dark")
        page.evaluate("new Promise(requestAnimationFrame)")


def test_pointing_at_an_op_tells_its_times_memory_and_what_it_waits_for(
    opened: Callable[..., Page], schedule: Schedule
) -> None:
    page, op = opened(schedule), Op("B", 0, 0)
    page.mouse.move(*point_of(page, schedule, op))
    words = page.locator(".tip").inner_text()
    hold = binding(schedule)[op]
    timed = next(timed for timed in schedule.by_device[0] if timed.op == op)
    assert words.startswith("0B0")
    assert f"{timed.start} to {timed.end} us, lasts 18086" in words
    assert f"waits for {hold.op} ({hold.reason})" in words
    assert "memory then: 1609728 bytes per token and layer, 100.0 % of the capacity" in words
    page.mouse.move(5, 5)
    assert page.locator(".tip").is_hidden()


def test_a_click_chooses_an_op_and_what_it_needs_leads_on(
    opened: Callable[..., Page], schedule: Schedule
) -> None:
    page = opened(schedule)
    page.mouse.click(*point_of(page, schedule, Op("F", 3, 5)))
    panel = page.locator(".chosen")
    assert panel.locator(".op").inner_text().startswith("3F5")
    needs = panel.get_by_role("button", name="2F5", exact=True)
    assert panel.get_by_role("button", name="4F5", exact=True).is_visible()
    assert panel.get_by_role("button", name="3B5", exact=True).is_visible()
    faded = colours(page)
    assert rgb(shade("W").background) not in faded
    needs.click()
    assert panel.locator(".op").inner_text().startswith("2F5")
    page.keyboard.press(".")
    after = schedule.orders[next(r for r in schedule.orders if r.device == 2)]
    following = after[after.index(Op("F", 2, 5)) + 1]
    assert panel.locator(".op").inner_text().startswith(str(following))
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    assert rgb(shade("W").background) in colours(page)  # nothing fades any more


def test_wheel_drag_buttons_and_keys_move_one_time_axis(
    opened: Callable[..., Page], schedule: Schedule
) -> None:
    page = opened(schedule, classic.one_f_one_b(schedule.problem))
    shown = page.locator(".span")
    whole = shown.inner_text()
    assert whole == "all of 0 to 1456749 us"
    pictures = [page.locator(".canvases").nth(i) for i in (0, 1)]
    before = [picture.screenshot() for picture in pictures]

    def span(before: str) -> tuple[float, float]:
        """What is shown, once that has changed."""
        page.locator(".span").filter(has_not_text=before).wait_for()
        start, _, end, *_ = shown.inner_text().split()
        return float(start), float(end)

    x, y = point_of(page, schedule, Op("F", 0, 12))
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    first = span(whole)
    assert 0 < first[0] < first[1] < 1456749
    page.mouse.move(5, 5)  # nothing is pointed at, so that only the axis makes a difference
    assert all(a != b.screenshot() for a, b in zip(before, pictures, strict=True))
    page.evaluate("scrollTo(0, 0)")  # screenshots have scrolled to the other chart
    page.mouse.move(x, y)
    words = shown.inner_text()
    page.mouse.down()
    page.mouse.move(x - 200, y)
    page.mouse.up()
    second = span(words)
    assert second[0] > first[0]
    assert second[1] - second[0] == pytest.approx(first[1] - first[0], rel=0.01)
    words = shown.inner_text()
    page.get_by_title("zoom in (+)").click()
    third = span(words)
    assert third[1] - third[0] == pytest.approx(0.6 * (second[1] - second[0]), rel=0.01)
    words = shown.inner_text()
    page.keyboard.press("ArrowLeft")
    assert span(words)[0] < third[0]
    page.mouse.dblclick(x, y)
    shown.get_by_text(whole).wait_for()


def test_the_critical_path_ends_with_the_schedule(
    opened: Callable[..., Page], schedule: Schedule
) -> None:
    page = opened(schedule)
    page.get_by_role("button", name="Critical path").click()
    assert "to 1310405 us" in page.locator(".chosen").inner_text()


def test_schedules_with_several_stages_on_a_device_faults_or_no_ops_open_too(
    opened: Callable[..., Page],
) -> None:
    v_shape = classic.zb_v(Problem.uniform(devices=4, microbatches=8, placement="v"))
    history = [{"objective": 40}, {"objective": "77/2", "bound": 38, "source": "order model"}]
    valid = classic.gpipe(Problem.uniform(devices=2, microbatches=2))
    wrong = Schedule(valid.problem, {Resource("compute", 0): valid.by_device[0][1:]}, Fraction(1))
    page = opened(
        replace(v_shape, info={"history": history}), wrong, replace(valid, timeline={}), valid
    )
    assert page.locator(".canvases").count() == 4
    assert page.locator(".warning").count() == 2
    assert "38.5" in page.locator("body").inner_text()
    first_row: Position = {"x": 300, "y": 37}
    for overlay in page.locator(".overlay").all():
        overlay.hover(position=first_row)
        assert page.locator(".tip").is_visible()
        overlay.click(position=first_row)
    for critical in page.get_by_role("button", name="Critical path").all():
        critical.click()
        page.keyboard.press("Escape")


@pytest.mark.slow
def test_24576_ops_can_be_looked_into(opened: Callable[..., Page]) -> None:
    large = classic.zb_h1(load_bundled("zb-28.3b-p32-m256"))
    page = opened(large, dark=True)
    page.get_by_role("button", name="Critical path").click()
    assert f"to {large.makespan} us" in page.locator(".chosen").inner_text()
