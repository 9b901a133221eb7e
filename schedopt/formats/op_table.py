"""A plain table of ops as CSV: for spreadsheets, and for runtimes of one's own."""

from __future__ import annotations

import csv
import io

from schedopt.exact import to_json
from schedopt.op import KINDS
from schedopt.schedule import Schedule


def write_op_table(schedule: Schedule) -> str:
    """One line for each op: device, its position there, kind, meaning, stage, microbatch, times.

    Lines are by device and position. The headings of the times name their unit;
    times are exact: 12, 0.5, or 1/3 where no decimal is.
    """
    unit = schedule.problem.time_unit
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    headings = ["device", "position", "kind", "meaning", "stage", "microbatch"]
    writer.writerow([*headings, f"start ({unit})", f"end ({unit})"])
    for device in range(schedule.problem.devices):
        for position, (op, start, end) in enumerate(schedule.by_device[device]):
            what = [op.kind, KINDS[op.kind], op.stage, op.microbatch]
            times = [to_json(time * schedule.resolution) for time in (start, end)]
            writer.writerow([device, position, *what, *times])
    return lines.getvalue()
