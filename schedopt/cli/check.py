"""`schedopt check`."""

from __future__ import annotations

import click

from schedopt.analysis import summary
from schedopt.check import Violation, check
from schedopt.cli.inputs import load_schedule
from schedopt.cli.options import json_option
from schedopt.cli.output import print_json, show
from schedopt.cli.report import schedule_report
from schedopt.exact import to_json

INVALID = 2


@click.command("check")
@click.argument("schedule", metavar="SCHEDULE")
@json_option
def command(*, schedule: str, as_json: bool) -> int:
    """Check a schedule file against every rule of its problem.

    Prints every violation with device, op and time; otherwise what the schedule achieves.

    \b
    Examples:
      schedopt check schedule.json
      schedopt check schedule.json --json

    Exit code: 0 valid, 2 not valid.
    """
    given = load_schedule(schedule)
    violations = check(given)
    if as_json:
        print_json(
            {
                "valid": not violations,
                "violations": [_to_dict(violation) for violation in violations],
                "summary": summary(given).to_dict(),
            }
        )
    elif violations:
        count = f"{len(violations)} violation" + ("s" if len(violations) > 1 else "")
        show(f"{schedule}: schedule is not valid, {count}:", *(f"  {v}" for v in violations))
    else:
        show(f"{schedule}: valid, no rule of the problem is broken", "")
        show(*schedule_report(given, summary(given)))
    return INVALID if violations else 0


def _to_dict(violation: Violation) -> dict[str, object]:
    return {
        "rule": violation.rule,
        "device": violation.device,
        "op": None if violation.op is None else str(violation.op),
        "time": None if violation.time is None else to_json(violation.time),
        "message": violation.message,
    }
