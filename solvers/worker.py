"""A process that searches windows for another one: `python -m schedopt.solvers.worker`.

It reads lines of JSON from its standard input and answers each on its standard output: first
the problem, then one task after the other. It ends when its input ends, so nothing is left
behind if the process that started it dies.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from schedopt.problem import Problem
from schedopt.solvers.instance import build_instance
from schedopt.solvers.neighbourhood import WindowSearch
from schedopt.solvers.state import search_graph
from schedopt.solvers.stretch import Repeat


def main() -> None:
    """Serve tasks until the input ends."""
    head = json.loads(sys.stdin.readline())
    graph = search_graph(Problem(**head["problem"]), index_order=head["index_order"])
    instance = build_instance(graph)
    search: WindowSearch | None = None
    for line in sys.stdin:
        task: dict[str, Any] = json.loads(line)
        if search is None:
            search = WindowSearch(
                instance,
                task["sequences"],
                bound=task["bound"],
                seed=head["seed"],
                kept=None if head["kept"] is None else Repeat(*head["kept"]),
            )
        elif task["sequences"] is not None:
            search.restart(task["sequences"])
        search.bound = task["bound"]
        before = search.windows
        now = time.monotonic()
        search.deadline = now + task["latest"]
        best = search.run(until=_after(now + task["seconds"]))
        answer = {
            "value": best.value,
            "sequences": best.sequences,
            "windows": search.windows - before,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _after(deadline: float) -> Callable[[], bool]:
    return lambda: time.monotonic() >= deadline


if __name__ == "__main__":
    main()
