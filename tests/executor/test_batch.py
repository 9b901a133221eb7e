"""A batch is cut along its first dimension, or refused with what would be valid."""

from __future__ import annotations

import pytest
import torch

from schedopt.executor.batch import cut, joined


def test_tensors_are_cut_and_everything_else_goes_to_every_microbatch() -> None:
    x, mask = torch.arange(6), torch.arange(12).reshape(6, 2)
    batch = cut((x, "text"), {"extra": {"mask": mask, "depth": 3}}, None, 3)
    assert [list(args[0]) for args in batch.args] == [[0, 1], [2, 3], [4, 5]]
    assert [args[1] for args in batch.args] == ["text"] * 3
    assert [kwargs["extra"]["mask"].tolist() for kwargs in batch.kwargs] == [
        mask[:2].tolist(),
        mask[2:4].tolist(),
        mask[4:].tolist(),
    ]
    assert [kwargs["extra"]["depth"] for kwargs in batch.kwargs] == [3, 3, 3]
    assert batch.targets == (None, None, None)


def test_lengths_differ_by_one_at_most_and_shares_follow() -> None:
    batch = cut((torch.arange(7),), {}, torch.arange(7), 3)
    assert [len(args[0]) for args in batch.args] == [3, 2, 2]
    assert batch.shares == (3 / 7, 2 / 7, 2 / 7)


def test_without_tensors_the_shares_are_equal_and_the_length_is_not_known() -> None:
    batch = cut((), {}, None, 4)
    assert (batch.args, batch.shares, batch.length) == (((),) * 4, (0.25,) * 4, None)


def test_a_batch_that_is_too_short_names_the_shape_and_the_least_length() -> None:
    with pytest.raises(ValueError, match=r"argument 0 has the shape \(3, 2\).* at least 4"):
        cut((torch.zeros(3, 2),), {}, None, 4)


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(
        ValueError, match=r"cut into 4.*; the first dimensions differ: 3.*, 8"
    ) as caught:
        cut((torch.zeros(3), torch.zeros(())), {"y": torch.zeros(8)}, None, 4)
    assert "argument 1 has the shape ()" in str(caught.value)


def test_pieces_of_a_leaf_can_each_go_backwards_alone() -> None:
    x = torch.ones(4, requires_grad=True)
    for (piece,) in cut((x,), {}, None, 2).args:
        (2 * piece).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2, 2]


def test_outputs_are_joined_as_they_were_cut() -> None:
    x = torch.arange(7)
    pieces = {i: args[0] for i, args in enumerate(cut((x,), {}, None, 3).args)}
    assert torch.equal(joined(dict(reversed(pieces.items()))), x)
    assert torch.equal(joined({i: (piece, piece) for i, piece in pieces.items()})[1], x)
    assert joined({0: torch.tensor(1), 1: torch.tensor(2)}).tolist() == [1, 2]
    assert joined({}) is None
