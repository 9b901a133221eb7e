"""Runs schedules on devices with PyTorch: the only part of the package that imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from schedopt.executor.errors import ExecutorError, LayoutError, MismatchError, PeerError

if TYPE_CHECKING:
    from schedopt.executor.pipeline import PipelineExecutor

__all__ = ["ExecutorError", "LayoutError", "MismatchError", "PeerError", "PipelineExecutor"]

_NEED_TORCH = {"PipelineExecutor": "schedopt.executor.pipeline"}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_NEED_TORCH[name])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise ModuleNotFoundError(
            f"{name} needs PyTorch, which is not installed: pip install schedopt[executor]",
            name="torch",
        ) from None
    return getattr(module, name)
