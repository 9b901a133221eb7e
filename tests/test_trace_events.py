"""Events are such that Perfetto keeps all of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schedopt.trace_events import counter, flow, process, span, thread


def ns(us: float) -> int:
    """What Perfetto makes of a time."""
    return int(us * 1000)


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=8), st.sampled_from([1, 3, 7, 1000]))
def test_spans_that_follow_each_other_do_not_overlap_when_cut_to_ns(
    times: list[int], parts: int
) -> None:
    ends = [float(Fraction(time, parts)) for time in sorted(times)]
    spans = [span(0, 0, "0F0", "F", start=a, end=b) for a, b in pairwise(ends)]
    for first, second in pairwise(spans):
        assert ns(first["ts"]) + ns(first["dur"]) == ns(second["ts"])
    for each, (start, end) in zip(spans, pairwise(ends), strict=True):
        assert abs(each["ts"] - start) < 0.001
        assert abs(each["ts"] + each["dur"] - end) < 0.002


def test_no_process_and_no_thread_is_0_and_none_is_a_main_thread() -> None:
    events = [
        *process(0, "a"),
        *thread(0, 0, "b"),
        span(0, 0, "c", "F", start=0, end=1),
        *flow(0, 1, "d", "transfer", begin=(0, 0), end=(1, 1)),
        counter(0, "e", 0, {"bytes": 1}),
    ]
    assert all(0 < event["pid"] < event["tid"] for event in events)
    assert {event["tid"] for event in events} == {1000, 1001}
