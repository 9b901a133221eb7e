from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from schedopt.front import Mark, front


def mark(memory: int, time: int, microbatches: int = 8, name: str = "solved") -> Mark:
    return Mark(name, "linear", microbatches, Fraction(memory), Fraction(time), name == "solved")


def test_only_what_nothing_beats_is_on_the_front() -> None:
    best = [mark(2, 9), mark(3, 7), mark(5, 6)]
    worse = [mark(2, 10), mark(3, 9), mark(4, 7), mark(9, 6)]
    assert front([*worse, *best]) == tuple(best)


def test_equal_marks_are_all_there() -> None:
    both = [mark(2, 9, name="ZB-V"), mark(2, 9)]
    assert set(front(both)) == set(both)


def test_marks_with_other_numbers_of_microbatches_are_not_compared() -> None:
    assert front([mark(2, 9, 8), mark(2, 5, 16)]) == (mark(2, 9, 8), mark(2, 5, 16))


MARKS = st.lists(
    st.builds(mark, st.integers(0, 5), st.integers(0, 5), st.sampled_from([1, 2])), max_size=12
)


@given(MARKS)
def test_a_mark_is_on_the_front_unless_another_dominates_it(marks: list[Mark]) -> None:
    best = front(marks)
    for one in marks:
        beaten = any(
            other.microbatches == one.microbatches
            and other.memory <= one.memory
            and other.time <= one.time
            and (other.memory, other.time) != (one.memory, one.time)
            for other in marks
        )
        assert (one in best) == (not beaten)
