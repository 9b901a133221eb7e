from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from schedopt import classic
from schedopt.bundled import load_bundled
from schedopt.formats.html import SCRIPTS, report
from schedopt.formats.html.data import page_data
from tests.schedules import two_by_two


class Reader(HTMLParser):
    """Elements of a page with their attributes, and the text in each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text.append("")

    def handle_data(self, data: str) -> None:
        if self.text:
            self.text[-1] += data

    def of(self, tag: str) -> list[str]:
        """Text of the elements of one kind."""
        found = zip(self.elements, self.text, strict=True)
        return [text.strip() for (name, _), text in found if name == tag]


def data_in(page: str) -> Any:
    """The data in a page."""
    return json.loads(Reader(page).of("script")[0])


def test_the_page_holds_exactly_the_data_of_its_schedules() -> None:
    schedules = [two_by_two(), two_by_two(capacity=1)]
    assert data_in(report(schedules)) == json.loads(json.dumps(page_data(schedules)))


def test_the_page_asks_for_nothing_outside_of_itself() -> None:
    page = report([two_by_two()])
    for _, attributes in Reader(page).elements:
        assert "src" not in attributes
        assert attributes.get("href", "data:").startswith("data:")  # type: ignore[union-attr]
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", page)


def test_every_script_is_in_the_page_once() -> None:
    folder = files("schedopt.formats.html")
    names = {item.name for item in folder.iterdir() if item.name.endswith(".js")}
    assert names == {f"{name}.js" for name in SCRIPTS}
    script = Reader(report([two_by_two()])).of("script")[1]
    for name in names:
        assert script.count(folder.joinpath(name).read_text(encoding="utf-8").strip()) == 1


def test_names_can_neither_end_the_data_nor_become_elements() -> None:
    name = '</script><img src=x onerror="alert(1)"><!-- data -->'
    page = report([two_by_two(name=name)])
    assert data_in(page)["schedules"][0]["title"] == f"by hand for {name}"
    assert "img" not in [tag for tag, _ in Reader(page).elements]
    assert Reader(page).of("title") == [f"by hand for {name}"]


def test_the_same_schedules_give_the_same_page() -> None:
    assert report([two_by_two()]) == report([two_by_two()])


@pytest.mark.slow
def test_a_page_of_24576_ops_has_all_of_them_in_less_than_a_megabyte() -> None:
    schedule = classic.zb_h1(load_bundled("zb-28.3b-p32-m256"))
    page = report([schedule])
    (found,) = data_in(page)["schedules"]
    assert sum(len(device["form"]) for device in found["devices"]) == 24_576
    assert len(page.encode()) < 1_000_000
