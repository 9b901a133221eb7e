"""The command reference: the help of every command, as a page of the documentation.

``python -m schedopt.cli.reference > docs/commands.md`` writes it.
"""

from __future__ import annotations

import click

from schedopt.cli import commands

WIDTH = 100
HEAD = """# Command reference

The help of every command as the command line prints it. The page is made from the commands
(`python -m schedopt.cli.reference > docs/commands.md`), and a test compares it with them.
[The command line](command-line.md) has what they share: exit codes, streams, shell completion.
"""


def reference() -> str:
    """The page, in Markdown."""
    parts = [HEAD]
    for name, command in sorted(commands.commands.items()):
        context = click.Context(
            command,
            info_name=f"schedopt {name}",
            max_content_width=WIDTH,
            terminal_width=WIDTH,
            help_option_names=["-h", "--help"],
        )
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
