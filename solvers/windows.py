"""The stage of the window search: in this process, or by a team of several."""

from __future__ import annotations

from schedopt.solvers.neighbourhood import WindowSearch
from schedopt.solvers.state import State
from schedopt.solvers.stretch import Repeat
from schedopt.solvers.team import Team, TeamError

MOST_OPS = 60_000
"""Ops above which the whole is too large for windows: for time, and for memory per process."""
SECONDS_TO_MEETING = 3.0
"""Seconds after which the processes of the window search exchange their best."""


class Windows:
    """Window search that goes on where it stopped.

    Parameters
    ----------
    state
        Whose best schedule is improved.
    kept
        As for `schedopt.solvers.neighbourhood.WindowSearch`.
    """

    def __init__(self, state: State, *, kept: Repeat | None = None) -> None:
        self.state = state
        self.kept = kept
        self.search: WindowSearch | None = None
        self.team: Team | None = None

    def close(self) -> None:
        """End the processes of the team."""
        if self.team is not None:
            self.state.budget.close(self.team.pids)
            self.team.close()

    def run(self, seconds: float, effort: float | None) -> str:
        """Window search: one process per worker, or in this one if there is one worker."""
        state = self.state
        if state.known.best is None:
            return "no start"
        if len(state.instance.ops) > MOST_OPS:
            return f"too large: {len(state.instance.ops)} ops, at most {MOST_OPS}"
        until = state.elapsed + seconds
        processes = state.budget.processes(len(state.instance.ops))
        note = state.budget.note(processes, "processes")
        if processes == 1 or effort is not None:
            return self._run_here(until, effort) + note
        try:
            return self._run_team(until, processes) + note
        except TeamError as error:
            state.known.faults.append(f"windows: {error}; one process goes on")
            return self._run_here(until, effort)

    def _run_here(self, until: float, effort: float | None) -> str:
        state = self.state
        if self.search is None:
            self.search = WindowSearch(
                state.instance,
                state.known.sequences(),
                bound=state.known.bound_in_steps(),
                seed=state.seed,
                kept=self.kept,
            )
        search = self.search
        if search.current.value > state.known.best_in_steps():
            search.restart(state.known.sequences())
        search.bound = state.known.bound_in_steps()
        search.deadline = state.began + until
        windows, spent = search.windows, search.deterministic_time

        def over() -> bool:
            if effort is not None and search.deterministic_time - spent >= effort:
                return True
            return state.elapsed >= until

        faults = len(search.faults)
        best = search.run(
            until=over,
            on_better=lambda better: state.known.tell(
                "windows", objective=better.value * state.instance.step
            ),
        )
        state.known.faults += [f"windows: {fault}" for fault in search.faults[faults:]]
        state.known.accept(state.instance.orders(best.sequences), "windows")
        return f"{search.windows - windows} windows"

    def _run_team(self, until: float, processes: int) -> str:
        state = self.state
        if self.team is None:
            state.budget.open(processes, len(state.instance.ops))
            self.team = Team(
                state.problem,
                index_order=state.index_order,
                size=processes,
                seed=state.seed,
                kept=self.kept,
            )
        windows = 0
        while state.elapsed < until and not state.known.closed:
            found = self.team.run(
                state.known.sequences(),
                value=state.known.best_in_steps(),
                bound=state.known.bound_in_steps(),
                seconds=min(SECONDS_TO_MEETING, until - state.elapsed),
                latest=until - state.elapsed,
            )
            windows += found.windows
            if found.value < state.known.best_in_steps():
                state.known.accept(state.instance.orders(found.sequences), "windows")
        return f"{windows} windows by {processes} processes"
