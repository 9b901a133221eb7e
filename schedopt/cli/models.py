"""What commands that run models share: options, and the part of the package that needs torch."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An argument of the factory, such as width=256; can be given several times.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to run; each rank takes one thread of the CPU, or a GPU.",
)


def executor_module(name: str) -> Any:
    """A module of `schedopt.executor`; factories can stand in the working directory.

    Raises
    ------
    click.UsageError
        If torch is not installed.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(f"schedopt.executor.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise click.UsageError(
            "this command needs PyTorch, which is not installed: pip install schedopt[executor]"
        ) from None


def options_of(model: str, settings: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of the factory MODULE:FACTORY.

    Raises
    ------
    InputError
        If there is no such factory, or it has no such arguments; names each fault.
    click.UsageError
        If torch is not installed.
    """
    options: dict[str, Any] = executor_module("factory").options_of(model, settings)
    return options
