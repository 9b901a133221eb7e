"""Ctrl-C during the imports, at a moment that an import hook chooses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

INTERRUPTS = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""
MODULES = ["schedopt.classic", "pydantic", "numpy", "ortools", "schedopt.solvers", "click", "rich"]
MODULE = ["-m", "schedopt"]


def interrupted_at(module: str, folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    """Run Python with Ctrl-C at the moment at which a module is first imported."""
    (folder / "sitecustomize.py").write_text(INTERRUPTS, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *line],
        env={**os.environ, "PYTHONPATH": path, "INTERRUPT_AT": module},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("module", MODULES)
def test_an_interrupted_start_of_the_command_line_is_quiet(module: str, tmp_path: Path) -> None:
    done = interrupted_at(module, tmp_path, *MODULE, "problems")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_installed_command_is_quiet_too(tmp_path: Path) -> None:
    script = shutil.which("schedopt", path=sysconfig.get_path("scripts"))
    if script is None:
        pytest.skip("needs the installed command")
    done = interrupted_at("ortools", tmp_path, script, "problems")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupted_import_of_the_library_is_an_interrupt(tmp_path: Path) -> None:
    catch = "try: import schedopt\nexcept KeyboardInterrupt: print('caught')"
    done = interrupted_at("ortools", tmp_path, "-c", catch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\n", "")


def test_without_an_interrupt_the_module_is_the_command_line(tmp_path: Path) -> None:
    done = interrupted_at("never", tmp_path, *MODULE, "problems")
    assert done.returncode == 0
    assert "zb-1.5b-p8-m24" in done.stdout
