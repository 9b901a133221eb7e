"""The solver on named sets of problems, against classic schedules and published schedulers.

Tables go to stdout, progress to stderr; docs/benchmarks.md explains sets and columns.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # where the parts are, also without make

from benchmarks import against_peers
from benchmarks.instances import SETS, Instance
from benchmarks.measure import Earlier, Key, Result, Settings, load, measure, save
from benchmarks.peers import read_rows
from benchmarks.tables import (
    changes,
    history_table,
    number,
    ratio,
    result_table,
    share,
    stage_table,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sets that were asked for and print one table for each."""
    parser = options()
    given = parser.parse_args(arguments)
    try:
        earlier = None if given.compare is None else load(given.compare)
    except (OSError, ValueError) as error:
        parser.error(f"--compare: {error}")
    if given.json is not None and not given.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {given.json.parent}")
    run = Run(
        settings=Settings(given.time_limit, given.workers, given.seed),
        earlier=earlier,
        json_path=given.json,
    )
    names = given.set or ["ablation" if given.ablation else "zb"]
    if given.ablation and "peers" in names:
        parser.error("--ablation: the set peers only counts; choose another --set")
    chosen: dict[str, list[Any]] = {name: choose(name, given) for name in dict.fromkeys(names)}
    if not any(chosen.values()):
        parser.error(f"--only: nothing in {', '.join(chosen)} matches {given.only.pattern!r}")
    for name, members in chosen.items():
        if name == "peers":
            run.peers(members)
        elif members:
            run.set(name, members, stages=given.ablation)
        if run.interrupted:
            sys.exit(130)


def options() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add(
        "--set",
        nargs="+",
        action="extend",
        choices=[*SETS, "peers"],
        metavar="SET",
        help=f"{', '.join(SETS)} or peers (default: zb)",
    )
    add(
        "--only",
        type=pattern,
        default=re.compile(""),
        metavar="PATTERN",
        help="only names that a regular expression matches somewhere",
    )
    add("--time-limit", type=positive, default=60.0, metavar="S", help="seconds for each problem")
    add("--workers", type=whole, metavar="N", help="threads and processes (default: all cores)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the search")
    add("--json", type=Path, metavar="FILE", help="write the results to FILE")
    add("--compare", type=Path, metavar="OLD", help="compare with results written by --json")
    add("--ablation", action="store_true", help="what each stage of the search adds")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--all", action="store_true", help="peers: every row, not only a sample")
    rows.add_argument(
        "--sample",
        type=whole,
        default=against_peers.SAMPLE,
        metavar="N",
        help=f"peers: rows in the sample (default: {against_peers.SAMPLE})",
    )
    return parser


def choose(name: str, given: argparse.Namespace) -> list[Any]:
    """The problems of a set, or the jobs against peers, that were asked for."""
    only: re.Pattern[str] = given.only
    if name == "peers":
        rows = [
            row for row in read_rows() if only.search(f"{row.group}, {row.algorithm}, {row.name}")
        ]
        return against_peers.jobs(against_peers.sampled(rows, None if given.all else given.sample))
    return [
        instance
        for instance in SETS[name]()
        if only.search(f"{instance.name}, {instance.problem.objective}")
    ]


class Run:
    """One run of the benchmark: what it prints, and what it writes after each problem."""

    def __init__(
        self,
        *,
        settings: Settings,
        earlier: Mapping[Key, Earlier] | None,
        json_path: Path | None,
    ) -> None:
        self.settings = settings
        self.earlier = earlier
        self.json_path = json_path
        self.records: list[Mapping[str, Any]] = []
        self.interrupted = False

    def set(self, name: str, instances: Sequence[Instance], *, stages: bool) -> None:
        """Solve the problems of a set and print its table."""
        results: list[Result] = []
        for position, instance in enumerate(instances, 1):
            self._begin(name, position, len(instances), instance)
            result = measure(instance, name, self.settings)
            if result.solution.interrupted:
                self.interrupted = True
                break
            results.append(result)
            self._end(result, result.to_dict())
        print(f"\n{name}\n")
        if stages:
            print(f"{stage_table(results)}\n\n{history_table(results)}")
        else:
            print(result_table(results, self.earlier))
        self._print_changes(results)

    def peers(self, jobs: Sequence[against_peers.Job]) -> None:
        """Solve the problems of published rows and print how many of them are met."""
        results: list[Result] = []
        matches: list[against_peers.Match] = []
        for position, job in enumerate(jobs, 1):
            self._begin("peers", position, len(jobs), job.instance)
            solution = against_peers.race(job, self.settings)
            if solution.interrupted:
                self.interrupted = True
                break
            result = Result("peers", job.instance, solution, peer=job.best)
            found = list(job.matches(solution))
            results.append(result)
            matches.extend(found)
            self._end(result, against_peers.record(result, found))
        print(f"\npeers\n\n{against_peers.count_table(matches)}")
        if any(match.verdict == "worse" for match in matches):
            print(f"\n{against_peers.worse_table(matches)}")
        self._print_changes(results)

    def _print_changes(self, results: Sequence[Result]) -> None:
        if self.earlier is not None:
            print(f"\nsince the earlier run: {changes(results, self.earlier)}")

    def _begin(self, name: str, position: int, count: int, instance: Instance) -> None:
        minimised = instance.problem.objective
        say(f"{name} {position}/{count}: {instance.name}, {minimised} ...")

    def _end(self, result: Result, record: Mapping[str, Any]) -> None:
        solution = result.solution
        peer = (
            ""
            if result.peer is None
            else f", {ratio(solution.objective, result.peer)} of the best peer"
        )
        say(
            f"    {solution.status} {number(solution.objective)}, gap {share(solution.gap)}{peer}, "
            f"{solution.seconds:.1f} s"
        )
        for fault in solution.faults:
            say(f"    fault: {fault}")
        self.records.append(record)
        if self.json_path is not None:
            save(self.json_path, self.records, self.settings)


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression, upper and lower case alike."""
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def positive(text: str) -> float:
    """A number greater than 0."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be greater than 0, got {text}")
    return number


def whole(text: str) -> int:
    """A whole number greater than 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


if __name__ == "__main__":
    main()
