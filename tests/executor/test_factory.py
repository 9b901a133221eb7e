"""Factories by name, their options from text, and the user's own errors."""

from __future__ import annotations

import pytest
import torch

from schedopt.executor.factory import ModelError, options_of
from schedopt.executor.models import model_of

MLP, TRANSFORMER = "schedopt.executor.models:mlp", "schedopt.executor.models:transformer"


def test_options_are_read_as_what_they_look_like() -> None:
    pairs = ["width=16", "dtype=bfloat16", "tied=true", "layers=None"]
    expected = {"width": 16, "dtype": torch.bfloat16, "tied": True, "layers": None}
    assert options_of(TRANSFORMER, pairs) == expected
    assert options_of(f"{__name__}:anything", ["path=/a=b", "sizes=[1, 2]", "rate=1e-3"]) == {
        "path": "/a=b",
        "sizes": [1, 2],
        "rate": 0.001,
    }


def anything(stages: int, *, device: str, **options: object) -> None:
    raise NotImplementedError


def test_every_wrong_option_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        options_of(MLP, ["witdh=3", "width", "rows=1", "rows=2", "dtype=float", "dtype=float31"])
    text = str(caught.value)
    assert "4 faults" in text
    assert f"option = witdh=3: {MLP} has the options: layers, width, rows, dtype, seed" in text
    assert "option = width: must be KEY=VALUE" in text
    assert "option = rows=2: rows is there twice" in text
    assert "option = dtype=float31: dtype is there twice" in text
    with pytest.raises(ModelError, match="dtype=float31: must be a type of torch"):
        options_of(MLP, ["dtype=float31"])


def test_what_a_factory_raises_is_named_with_its_line() -> None:
    with pytest.raises(ModelError) as caught:
        model_of("tests.executor.user_models:raising", 2, device="cpu")
    text = str(caught.value)
    assert "the factory: KeyError: 'checkpoint'" in text
    assert 'in raising: raise KeyError("checkpoint")' in text
