"""Ctrl-C while the command line still imports what it needs.

Itself it imports only what Python has loaded by then.
"""

import os
import sys

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended with nothing to return."""


class QuietStart:
    """Context of imports: Ctrl-C ends a command without a traceback.

    A process that is not started as `schedopt` or `python -m schedopt` gets its
    KeyboardInterrupt.

    Raises
    ------
    SystemExit
        Instead of KeyboardInterrupt, with the exit code `INTERRUPTED`.
    """

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """End a command that was interrupted."""
        if kind is KeyboardInterrupt and _is_command(sys.argv[0]):
            raise SystemExit(INTERRUPTED) from None


def _is_command(program: str) -> bool:
    """Whether this is what `sys.argv[0]` is for the command line.

    It is "-m" only until Python has found the module that it is to run.
    """
    folder, name = os.path.split(program)
    if name == "__main__.py":
        name = os.path.basename(folder)
    return program == "-m" or os.path.splitext(name)[0] == "schedopt"
