from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schedopt.bundled import UnknownProblemError, bundled_names, bundled_path, load_bundled
from schedopt.graph import build_graph
from schedopt.layout import parse_layout
from schedopt.memory import peak_memory
from schedopt.op import Op, Resource
from schedopt.partition import from_layers, from_layout
from schedopt.problem import Problem
from schedopt.schedule import Schedule

ROOT = Path(__file__).parent.parent

# name, F, B, W, lag (us), hidden size, heads, m (F + B + W)
ZERO_BUBBLE = [
    ("zb-1.5b-p8-m24", 18522, 18086, 9337, 601, 2304, 24, 1102680),
    ("zb-1.5b-p8-m32", 18513, 18086, 9331, 626, 2304, 24, 1469760),
    ("zb-1.5b-p8-m64", 18546, 18097, 9321, 762, 2304, 24, 2941696),
    ("zb-6.2b-p8-m24", 29718, 29444, 19927, 527, 4096, 32, 1898136),
    ("zb-6.2b-p8-m32", 29802, 29428, 19530, 577, 4096, 32, 2520320),
    ("zb-6.2b-p8-m64", 29935, 29621, 19388, 535, 4096, 32, 5052416),
    ("zb-14.6b-p16-m48", 11347, 11248, 8132, 377, 5120, 40, 1474896),
    ("zb-14.6b-p16-m64", 11307, 11254, 8101, 379, 5120, 40, 1962368),
    ("zb-14.6b-p16-m128", 11325, 11308, 8109, 378, 5120, 40, 3934976),
    ("zb-28.3b-p32-m96", 10419, 10207, 7715, 408, 6144, 48, 2720736),
    ("zb-28.3b-p32-m128", 10408, 10204, 7703, 408, 6144, 48, 3624320),
    ("zb-28.3b-p32-m256", 10402, 10248, 7698, 460, 6144, 48, 7257088),
]


def test_the_bundled_problems_are_these() -> None:
    assert bundled_names() == (
        "deepseek-v3-p16-v1-m24",
        "deepseek-v3-p16-v2-m24",
        "links-p4-m24-fast",
        "links-p4-m24-slow",
        "llama3-405b-p16-v1-m16",
        "llama3-405b-p16-v8-m16",
        "megatron-175b-p12-v1-m24",
        "megatron-175b-p12-v4-m24",
        "recompute-p4-m8",
        "vgg16-p4-m8",
        "vocabulary-p8-m32",
        *(row[0] for row in ZERO_BUBBLE),
        "zb-profile-p8-m32",
    )


MADE_UP = ("links-p4-m24-fast", "links-p4-m24-slow", "recompute-p4-m8")
"""Problems that show an effect, with numbers of no machine."""


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_problem_has_its_name_a_source_and_units(name: str) -> None:
    problem = load_bundled(name)
    assert problem.name == name
    assert "Chosen: the capacity" in problem.source
    assert problem.warnings == ()
    assert (problem.time_unit == "units") == (name in (*MADE_UP, "vocabulary-p8-m32"))
    assert (problem.memory_unit == "activations") == (problem.time_unit == "units")
    if name in MADE_UP:
        assert re.search(r"^Made up:", problem.source)
        return
    assert "Guessed:" in problem.source
    assert re.search(r"^(Published|Measured):", problem.source)


@pytest.mark.parametrize("name", bundled_names())
def test_one_microbatch_fits_every_device(name: str) -> None:
    problem = load_bundled(name)
    for device, stages in enumerate(problem.stages_on):
        held = problem.static[device]
        highest = held
        for stage in stages:
            data = problem.stage_data[stage]
            held += data.memory["F"]
            highest = max(highest, held + data.transient["F"])
        for stage in reversed(stages):
            data = problem.stage_data[stage]
            for kind in list(data.durations)[1:]:
                acquired = max(data.memory[kind], 0)
                highest = max(highest, held + acquired + data.transient[kind])
                held += data.memory[kind]
        capacity = problem.capacity[device]
        assert capacity is not None
        assert highest <= capacity
        assert held == problem.static[device]


# ---------------------------------------------------------------------- names


def test_an_unknown_name_suggests_close_ones() -> None:
    with pytest.raises(KeyError) as error:
        load_bundled("zb-1.5b-p8-m24x")
    assert isinstance(error.value, UnknownProblemError)
    assert error.value.close[0] == "zb-1.5b-p8-m24"
    assert str(error.value).startswith(
        "no bundled problem is called 'zb-1.5b-p8-m24x'; did you mean zb-1.5b-p8-m24 or "
    )


@pytest.mark.parametrize("name", ["", "quite different", "../problems/vgg16-p4-m8", "vgg16-p4-m8."])
def test_what_is_no_name_is_not_found(name: str) -> None:
    with pytest.raises(UnknownProblemError, match="no bundled problem is called"):
        bundled_path(name)


def test_bundled_files_are_toml_with_the_comments_they_need() -> None:
    for name in bundled_names():
        assert bundled_path(name) == ROOT / "schedopt" / "data" / "problems" / f"{name}.toml"


# ---------------------------------------------------------------------- the table of the docs


def test_the_documentation_lists_every_problem_with_its_numbers() -> None:
    text = (ROOT / "docs" / "bundled-problems.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    assert rows[0] == ["name", "p", "S", "m", "what", "source", "guessed"]
    table = {row[0]: row[1:] for row in rows[2:]}
    assert tuple(table) == bundled_names()
    for name, cells in table.items():
        problem = load_bundled(name)
        counts = (problem.devices, problem.stage_count, problem.microbatches)
        assert tuple(map(int, cells[:3])) == counts
        assert all(cells[3:])


# ---------------------------------------------------------------------- zero bubble


@pytest.mark.parametrize(("name", "F", "B", "W", "lag", "hidden", "heads", "work"), ZERO_BUBBLE)
def test_zero_bubble_rows_are_the_published_ones(
    name: str, F: int, B: int, W: int, lag: int, hidden: int, heads: int, work: int
) -> None:
    problem = load_bundled(name)
    devices, microbatches = map(int, re.findall(r"-p(\d+)-m(\d+)", name)[0])
    activation = 34 * hidden + 5 * heads * 1024
    assert (problem.devices, problem.stage_count) == (devices, devices)
    assert problem.microbatches == microbatches
    assert problem.microbatches * (F + B + W) == work
    assert problem.lag == lag
    assert problem.placement_name == "linear"
    assert problem.capacity == (devices * activation,) * devices
    assert problem.static == (0,) * devices
    for stage in problem.stage_data:
        assert stage.durations == {"F": F, "B": B, "W": W}
        assert stage.memory == {
            "F": activation,
            "B": -(2 * hidden + 5 * heads * 1024),
            "W": -32 * hidden,
        }


def test_the_unequal_profile_is_bound_by_its_last_stage() -> None:
    problem = load_bundled("zb-profile-p8-m32")
    start_of_last = sum(s.durations["F"] for s in problem.stage_data[:7]) + 7 * 473
    work_of_last = 32 * sum(problem.stage_data[7].durations.values())
    assert start_of_last + work_of_last == 3831880
    assert problem.capacity == (8 * 1240,) * 8
    assert [s.memory["F"] for s in problem.stage_data] == [943, *[1240] * 6, 1071]


# ---------------------------------------------------------------------- published layouts


def assert_same_costs(name: str, expected: Problem) -> None:
    problem = load_bundled(name)
    assert problem.stage_data == expected.stage_data
    assert problem.static == expected.static
    assert problem.device_of == expected.device_of


@pytest.mark.parametrize(("name", "chunks"), [("v1", 1), ("v4", 4)])
def test_megatron_stages_are_sums_of_96_layers(name: str, chunks: int) -> None:
    s, h, V, a, t = 2048, 12288, 51200, 96, 8
    products, attention, rate = 24 * s * h**2, 4 * s**2 * h, t * 156e6
    element = s * h // 2**20
    layer = {
        "F": round((products + attention) / rate),
        "B": round((2 * products + 3 * attention) / rate),
        "W": round(products / rate),
    }
    output = round(2 * s * h * V / rate)
    kept_for_w = element * (8 + 24 // t)
    whole = element * (10 + 24 // t + 5 * a * s // (h * t))
    weights = 18 * V * h // t // 2**20
    expected = from_layers(
        durations=layer,
        memory={
            "F": 2 * element,
            "B": kept_for_w - 2 * element,
            "static": 18 * 12 * h**2 // t // 2**20,
            "transient": {"B": whole - kept_for_w},
        },
        layers=96,
        embedding={"durations": {"F": 0, "B": 0, "W": 0}, "memory": {"static": weights}},
        head={
            "durations": {"F": output, "B": output, "W": output},
            "memory": {"F": 4 * element + 4 * s * V // t // 2**20, "B": 0, "static": weights},
        },
        devices=12,
        placement="interleaved",
        chunks=chunks,
        microbatches=24,
    )
    assert_same_costs(f"megatron-175b-p12-{name}-m24", expected)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("v1", [7, *[8] * 14, 7]), ("v8", [0, *[1] * 126, 0])],
)
def test_llama_stages_are_sums_of_126_layers(name: str, partition: list[int]) -> None:
    s, h, f, kv, V, t = 8192, 16384, 53248, 1024, 128256, 8
    parameters = 2 * h * h + 2 * h * kv + 3 * h * f
    products, attention, rate = 2 * s * parameters, 2 * s**2 * h, t * 445e6
    output = round(2 * s * h * V / rate)

    def mebibytes(per_token: int) -> int:
        return per_token * s // t // 2**20

    def weights(count: int) -> int:
        return -int(-count / t * (6 + 12 / 128) // 2**20)

    expected = from_layers(
        durations={
            "F": round((products + attention) / rate),
            "B": round((products + 2.5 * attention) / rate),
            "W": round(products / rate),
        },
        memory={
            "F": mebibytes(8 * h + 4 * kv + 4 * f),
            "B": mebibytes(12 * h + 4 * kv + 8 * f) - mebibytes(8 * h + 4 * kv + 4 * f),
            "static": weights(parameters),
            "transient": dict.fromkeys("FBW", mebibytes(4 * h + 2 * f)),
        },
        layers=126,
        partition=partition,
        embedding={
            "durations": {"F": 20, "B": 0, "W": 20},
            "memory": {"static": weights(V * h), "transient": dict.fromkeys("FBW", 168)},
        },
        head={
            "durations": {"F": output, "B": output, "W": output},
            "memory": {
                "F": mebibytes(2 * h + 4 * V),
                "B": 0,
                "static": weights(V * h),
                "transient": dict.fromkeys("FBW", 168),
            },
        },
        devices=16,
        placement="interleaved",
        microbatches=16,
    )
    assert_same_costs(f"llama3-405b-p16-{name}-m16", expected)


@pytest.mark.parametrize(
    ("name", "layout"), [("v1", "Et*4|(t*4|)*14tmL"), ("v2", "Et*3|(tt|)*29,m|L")]
)
def test_deepseek_stages_are_sums_of_61_layers(name: str, layout: str) -> None:
    s, h, V, rate = 4096, 7168, 129280, 420e6
    up = 1536 * 128 * 192 + 512 * 128 * 256
    attention_weights = h * 1536 + h * 576 + 128 * 128 * h + up
    expert, router = 3 * h * 2048, 256 * h
    products = 2 * s * (attention_weights + 9 * expert + router)
    attention, again = s**2 * 128 * 320, 2 * s * up
    projection, output = round(4 * s * h**2 / rate), round(4 * s * h * V / rate)
    layer = {
        "F": round((products + attention) / rate),
        "B": round((products + 2.5 * attention + again) / rate),
        "W": round(products / rate),
    }

    def mebibytes(per_token: float) -> float:
        return per_token * s / 2**20

    def weights(others: int, experts: int = 0) -> int:
        return -int(-(6 * (others + experts) + 8 * (experts / 2 + others / 128)) // 2**20)

    kept = mebibytes(4 * h + 2 * (1536 + 576) + 1.5 * 128 * 128 + 8 * h + 9 * 2 * 2048)
    # of the latents in 16 bits, all others in 8 bits: q, k and v, o, gate and up, down
    gradients = mebibytes(2 * (1536 + 576) + 128 * (192 + 256) + h + 9 * 2 * 2048 + 9 * h)
    usual = weights(attention_weights + expert + router, 4 * expert)
    dense = weights(attention_weights + 3 * h * 18432)
    costs: dict[str, dict[str, Any]] = {
        "E": {
            "durations": {"F": 0, "B": 0, "W": 0},
            "memory": {"static": weights(V * h) + 3 * (dense - usual)},
        },
        "t": {
            "durations": layer,
            "memory": {"F": kept, "B": gradients, "static": usual},
        },
        "m": {
            "durations": {kind: duration + projection for kind, duration in layer.items()},
            "memory": {
                "F": kept + mebibytes(4 * h),
                "B": gradients + mebibytes(2 * h),
                "static": weights(
                    attention_weights + expert + router + 2 * h * h + V * h, 4 * expert
                ),
            },
        },
        "L": {
            "durations": {"F": output, "B": output, "W": output},
            "memory": {"F": mebibytes(4 * h + 4 * V), "B": 0, "static": weights(V * h)},
        },
    }
    expected = from_layout(layout, costs, layers=61, devices=16, microbatches=24)
    assert_same_costs(f"deepseek-v3-p16-{name}-m24", expected)


def test_the_deepseek_layout_puts_prediction_and_loss_on_the_last_two_devices() -> None:
    problem = load_bundled("deepseek-v3-p16-v2-m24")
    stages = parse_layout("Et*3|(tt|)*29,m|L", layers=61)
    assert problem.stage_count == len(stages)
    assert problem.stages_on[14:] == ((14, 30), (15, 31))
    assert (stages[30], stages[31]) == (["m"], ["L"])


# ---------------------------------------------------------------------- VGG-16

# node, forward and backward time (us), bytes of the output and of the weights; in place: no memory
VGG16 = [
    ("Conv2d", 22307, 24613, 1644167168, 7168),
    ("ReLU", 4446, 5553, 1644167168, 0),
    ("Conv2d", 46201, 113330, 1644167168, 147712),
    ("ReLU", 4455, 5311, 1644167168, 0),
    ("MaxPool2d", 3795, 5579, 411041792, 0),
    ("Conv2d", 15155, 39648, 822083584, 295424),
    ("ReLU", 2359, 2738, 822083584, 0),
    ("Conv2d", 22062, 53379, 822083584, 590336),
    ("ReLU", 2513, 2620, 822083584, 0),
    ("MaxPool2d", 2211, 2788, 205520896, 0),
    ("Conv2d", 10814, 18335, 411041792, 1180672),
    ("ReLU", 1377, 1380, 411041792, 0),
    ("Conv2d", 17458, 27023, 411041792, 2360320),
    ("ReLU", 1640, 1463, 411041792, 0),
    ("Conv2d", 14245, 33888, 411041792, 2360320),
    ("ReLU", 1549, 1321, 411041792, 0),
    ("MaxPool2d", 1169, 1513, 102760448, 0),
    ("Conv2d", 9249, 14574, 205520896, 4720640),
    ("ReLU", 1026, 696, 205520896, 0),
    ("Conv2d", 15359, 21900, 205520896, 9439232),
    ("ReLU", 848, 679, 205520896, 0),
    ("Conv2d", 11775, 28670, 205520896, 9439232),
    ("ReLU", 881, 642, 205520896, 0),
    ("MaxPool2d", 802, 781, 51380224, 0),
    ("Conv2d", 5608, 7381, 51380224, 9439232),
    ("ReLU", 784, 266, 51380224, 0),
    ("Conv2d", 4070, 7396, 51380224, 9439232),
    ("ReLU", 463, 190, 51380224, 0),
    ("Conv2d", 4042, 8648, 51380224, 9439232),
    ("ReLU", 455, 175, 51380224, 0),
    ("MaxPool2d", 553, 234, 12845056, 0),
    ("Size", 0, 0, 4, 0),
    ("View", 0, 0, 12845056, 0),
    ("Linear", 2475, 4575, 2097152, 411058176),
    ("ReLU", 377, 30, 2097152, 0),
    ("Dropout", 0, 0, 2097152, 0),
    ("Linear", 709, 734, 2097152, 67125248),
    ("ReLU", 277, 32, 2097152, 0),
    ("Dropout", 0, 0, 2097152, 0),
    ("Linear", 393, 548, 512000, 16388000),
]
IMAGES = 77070336


def test_vgg16_stages_are_sums_of_the_profile() -> None:
    problem = load_bundled("vgg16-p4-m8")
    inputs = [IMAGES, *(row[3] for row in VGG16)]
    kept = [
        size / 2**20 if row[0] in ("Conv2d", "MaxPool2d", "Linear") else 0
        for row, size in zip(VGG16, inputs, strict=False)
    ]
    expected = from_layers(
        durations={"F": [row[1] for row in VGG16], "BW": [row[2] for row in VGG16]},
        memory={"F": kept},
        partition="5,5,7,23",
        devices=4,
        microbatches=8,
    )
    assert problem.stage_data == expected.stage_data
    ends = [VGG16[4], VGG16[9], VGG16[16]]
    assert problem.lag == tuple(round(row[3] / 10e9 * 1e6) for row in ends)
    weights = [sum(row[4] for row in VGG16[a:b]) for a, b in ((0, 5), (5, 10), (10, 17), (17, 40))]
    assert problem.static == tuple(-(-3 * amount // 2**20) for amount in weights)


def test_vgg16_is_cut_behind_pooling_layers_with_the_smallest_large_stages() -> None:
    pools = [index + 1 for index, row in enumerate(VGG16) if row[0] == "MaxPool2d"]

    def loads(cuts: tuple[int, ...]) -> list[int]:
        bounds = (0, *cuts, len(VGG16))
        return sorted(
            (sum(row[1] + row[2] for row in VGG16[a:b]) for a, b in pairwise(bounds)),
            reverse=True,
        )

    ways = [(a, b, c) for a in pools for b in pools for c in pools if a < b < c]
    assert len(ways) == 10
    assert min(ways, key=loads) == (5, 10, 17)


# ---------------------------------------------------------------------- capacities


def one_f_one_b(problem: Problem) -> Schedule:
    """1F1B with W right after B, for one stage on each device."""
    orders = {}
    for device, data in enumerate(problem.stage_data):
        backward = list(data.durations)[1:]
        ahead = min(problem.devices - device, problem.microbatches)
        ops = [Op("F", device, i) for i in range(ahead)]
        for i in range(problem.microbatches):
            ops += [Op(kind, device, i) for kind in backward]
            if i + ahead < problem.microbatches:
                ops.append(Op("F", device, i + ahead))
        orders[Resource("compute", device)] = ops
    return Schedule.from_order(build_graph(problem), orders)


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-v3-p16-v1-m24",
        "llama3-405b-p16-v1-m16",
        "megatron-175b-p12-v1-m24",
        "vgg16-p4-m8",
        "zb-1.5b-p8-m24",
        "zb-14.6b-p16-m48",
    ],
)
def test_the_capacity_is_exactly_what_1f1b_takes(name: str) -> None:
    problem = load_bundled(name)
    assert max(peak_memory(one_f_one_b(problem))) == problem.capacity[0]
    assert set(problem.capacity) == {problem.capacity[0]}


def test_files_do_not_repeat_what_follows() -> None:
    for name in bundled_names():
        fields = tomllib.loads(bundled_path(name).read_text(encoding="utf-8"))
        assert "format" not in fields
        assert "stages" not in fields
