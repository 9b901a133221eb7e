"""The command line. A command reads, calls the library and prints; it has no logic of its own."""

from __future__ import annotations

from schedopt.starting import INTERRUPTED, QuietStart

with QuietStart():
    import platform
    import sys
    from collections.abc import Sequence
    from importlib.metadata import version
    from typing import NoReturn

    import click

    from schedopt.cli import (
        bench,
        check,
        compare,
        explain,
        export,
        import_,
        plot,
        problems,
        profile,
        recommend,
        report_page,
        run,
        show,
        solve,
        sweep,
    )
    from schedopt.cli.output import accept_any_encoding, forget_stdout, message
    from schedopt.errors import InputError, NotApplicableError

    VERSIONS = f"(ortools {version('ortools')}, Python {platform.python_version()})"

BAD_INPUT = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(message=f"schedopt {version('schedopt')} {VERSIONS}")
def commands() -> None:
    """Optimal schedules for pipeline-parallel training, with proofs.

    \b
    Examples:
      schedopt problems                             the bundled problems
      schedopt solve zb-1.5b-p8-m24 -o best.json    solve one, keep the schedule
      schedopt compare best.json                    against every classic schedule
      schedopt recommend zb-1.5b-p8-m24             which placement and schedule to use
      schedopt show best.json                       draw it
      schedopt plot best.json -o best.svg           draw it into a file
      schedopt report best.json -o best.html        a page to look into it
      schedopt explain best.json                    where its time goes, what would help
      schedopt check best.json                      test it against every rule
      schedopt export best.json --to torch-compute-only -o best.csv
      schedopt profile MODULE:FACTORY -o p.json     measure a model, as a problem
      schedopt run best.json --model MODULE:FACTORY run it with PyTorch
      schedopt bench best.json --emulate            time it on processes of this machine
    """


for module in (
    *(solve, compare, recommend, sweep, check, show, plot, report_page, explain, export, import_),
    *(problems, profile, run, bench),
):
    commands.add_command(module.command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit: no traceback for anything in a file or an option."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        accept_any_encoding()
        code = commands.main(arguments, prog_name="schedopt", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return BAD_INPUT
    except (InputError, NotApplicableError) as error:
        message(f"Error: {error}")
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        message("interrupted")
        return INTERRUPTED
    except OSError as error:
        forget_stdout()
        message(f"Error: output could not be written: {error.strerror}")
        return BAD_INPUT
    return code if isinstance(code, int) else 0
