"""What is known of a boundary tensor before it is sent."""

from __future__ import annotations

import pytest
import torch

from schedopt.executor import LayoutError
from schedopt.executor.layouts import bytes_of, from_text, layout_of, require, shown, to_text
from schedopt.executor.program import Message

TENSORS = (
    torch.zeros(2, 3, requires_grad=True),
    None,
    torch.zeros(4, dtype=torch.bfloat16),
    torch.tensor(1),
)


def test_a_layout_survives_the_store() -> None:
    layout = layout_of(TENSORS)
    assert from_text(to_text(layout)) == layout
    assert from_text(to_text(())) == ()


def test_a_layout_tells_shapes_types_and_who_needs_a_gradient() -> None:
    assert shown(layout_of(TENSORS)) == (
        "[2x3 float32 with gradient, nothing, 4 bfloat16 without gradient, "
        "scalar int64 without gradient]"
    )
    assert bytes_of(layout_of(TENSORS)) == 2 * 3 * 4 + 4 * 2 + 8


def test_a_message_that_is_not_what_was_agreed_is_refused_with_both() -> None:
    agreed = layout_of([torch.zeros(2, 3)])
    require(Message(0, 1, 5), layout_of([torch.ones(2, 3)]), agreed)
    with pytest.raises(LayoutError, match=r"microbatch 5: is \[2x4 float32.*was \[2x3 float32"):
        require(Message(0, 1, 5), layout_of([torch.ones(2, 4)]), agreed)
