"""Factories of models: found by name, given options as text, and told apart from our own faults.

The code of a model is the user's. What it raises is shown as it is, with the places in it, and
with nothing of what called it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from schedopt.errors import Fault, InputError
from schedopt.executor.errors import ExecutorError

_FOREIGN = (Path(__file__).parent.parent, Path(torch.__file__).parent)
"""Folders of code that is not the user's."""


class ModelError(InputError):
    """A model can not be made or used; names what, and where in its code."""

    def __init__(self, faults: Sequence[Fault], source: str = "") -> None:
        super().__init__("model", faults, source)


@contextmanager
def naming(name: str, where: str) -> Iterator[None]:
    """Raise what the code of a model raises as a ModelError that says where: "stage 2, op F".

    Parameters
    ----------
    name
        MODULE:FACTORY.
    where
        What is being done.
    """
    try:
        yield
    except (InputError, ExecutorError):
        raise
    except Exception as error:
        place = ", ".join([where, *getattr(error, "__notes__", ())])
        raise ModelError([Fault(place, "", described(error))], name) from error


def described(error: BaseException) -> str:
    """An exception with the places of the user's code that it went through, one a line."""
    lines = [f"{type(error).__name__}: {error}"]
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.exists() and not any(path.is_relative_to(folder) for folder in _FOREIGN):
            lines.append(f"at {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}")
    return "\n    ".join(lines)


def find_factory(name: str) -> Callable[..., Any]:
    """The function MODULE:FACTORY.

    Raises
    ------
    ModelError
        If there is none.
    """
    module_name, _, factory_name = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, ValueError, AttributeError) as error:
        raise wrong(name, f"must be MODULE:FACTORY that can be imported; {error}") from error
    except Exception as error:
        raise wrong(name, f"can not be imported; {described(error)}") from error
    if not callable(factory):
        raise wrong(name, f"must be a function; {factory_name} is a {type(factory).__name__}")
    found: Callable[..., Any] = factory
    return found


def wrong(name: str, valid: str) -> ModelError:
    """The error that says what is wrong with MODULE:FACTORY."""
    return ModelError([Fault("model", name, valid)])


def options_of(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Options for the factory MODULE:FACTORY from texts such as "width=256".

    A value is read as a number, a truth value, a list or a text in the way of Python; "true" and
    "false" as well, and the name of a type ("float64") where the default is one.

    Raises
    ------
    ModelError
        For every text that is no KEY=VALUE, or whose key is no option of the factory.

    Examples
    --------
    >>> options_of("schedopt.executor.models:mlp", ["width=256", "dtype=float64"])
    {'width': 256, 'dtype': torch.float64}
    """
    parameters = dict(inspect.signature(find_factory(name)).parameters)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    valid = [
        key
        for key, parameter in list(parameters.items())[1:]
        if key != "device" and parameter.kind in (parameter.KEYWORD_ONLY, *_NAMED)
    ]
    options: dict[str, Any] = {}
    faults = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            faults.append(Fault("option", pair, "must be KEY=VALUE"))
        elif key in options:
            faults.append(Fault("option", pair, f"{key} is there twice"))
        elif key not in valid and not takes_any:
            known = ", ".join(valid) or "none"
            faults.append(Fault("option", pair, f"{name} has the options: {known}"))
        else:
            default = parameters[key].default if key in parameters else None
            try:
                options[key] = _value(text, default)
            except ValueError as error:
                faults.append(Fault("option", pair, str(error)))
    if faults:
        raise ModelError(faults)
    return options


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)


def _value(text: str, default: Any) -> Any:
    if isinstance(default, torch.dtype):
        found = getattr(torch, text.removeprefix("torch."), None)
        if not isinstance(found, torch.dtype):
            raise ValueError("must be a type of torch, such as float32")  # noqa: TRY004
        return found
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
