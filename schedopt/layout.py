"""Layout texts in the manner of Megatron-LM: "Et*3|(tt|)*29,m|L" -> the symbols of each stage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from schedopt.errors import Fault, InputError

SYMBOLS = {
    "E": "embedding",
    "t": "transformer layer",
    "m": "multi-token prediction layer",
    "L": "output layer and loss",
}
"""Symbols of a layout text and their meaning."""

MAX_SYMBOLS = 100_000
"""Largest number of symbols and stage ends that a layout may give."""

_COUNT = re.compile(r"[0-9]{1,6}")


def parse_layout(text: str, *, layers: int | None = None) -> list[list[str]]:
    """Read a layout text.

    The symbols are `SYMBOLS`; ``|`` stands between two stages, ``*n`` repeats the symbol, the
    ``|`` or the group in parentheses before it, commas mean nothing. A stage may be empty.
    Stages are in model order; with p devices stage s belongs on device s mod p.

    Parameters
    ----------
    text
        The layout.
    layers
        Number of transformer layers of the model, if the number of ``t`` is to be checked.

    Returns
    -------
    list of list of str
        The symbols of each stage.

    Raises
    ------
    InputError
        A `ValueError` naming the token that is wrong and its position, counted from 1; or saying
        that E is not the first and only E, L not the last and only L, or the layers are not
        ``layers``.

    References
    ----------
    Megatron Core user guide, "Custom Pipeline Model Parallel Layout".

    Examples
    --------
    >>> parse_layout("E(t|)*2,L")
    [['E', 't'], ['t'], ['L']]
    """
    symbols = "".join(_Reader(text).pieces())
    faults = []
    for symbol, place, found in (("E", "first", symbols[:1]), ("L", "last", symbols[-1:])):
        if symbols.count(symbol) != 1 or found != symbol:
            valid = f"must be there once, as the {place} symbol"
            faults.append(Fault(symbol, f"{symbols.count(symbol)} times", valid))
    count = symbols.count("t")
    if layers is not None and count != layers:
        faults.append(Fault("t", f"{count} times", f"{count} != {layers}, the number of layers"))
    if faults:
        raise InputError("layout", faults)
    return [list(stage) for stage in symbols.split("|")]


class _Reader:
    """Reads a layout text from left to right; positions count from 1."""

    def __init__(self, text: str) -> None:
        self.tokens = [
            (match[0], match.start() + 1)
            for match in re.finditer(r"[0-9]+|.", text, re.DOTALL)
            if match[0] != ","
        ]
        self.tokens.append(("", len(text) + 1))
        self.index = 0

    @property
    def token(self) -> str:
        return self.tokens[self.index][0]

    @property
    def position(self) -> int:
        return self.tokens[self.index][1]

    def pieces(self) -> Iterator[str]:
        """The symbols and stage boundaries, one text for each item with its repetition."""
        size = 0
        while self.token:
            token, position = self.token, self.position
            piece = self._group() if token == "(" else self._symbol()
            count = self._repetition()
            size += len(piece) * count
            if size > MAX_SYMBOLS:
                raise _error(position, token, f"gives more than {MAX_SYMBOLS} symbols")
            yield piece * count

    def _symbol(self) -> str:
        token = self.token
        if token != "|" and token not in SYMBOLS:
            valid = f"is not expected here; the symbols are {', '.join(SYMBOLS)} and |"
            raise _error(self.position, token, valid)
        self.index += 1
        return token

    def _group(self) -> str:
        start = self.position
        self.index += 1
        piece = ""
        while self.token != ")":
            if not self.token:
                raise _error(start, "(", "is never closed")
            if self.token == "(":
                raise _error(self.position, "(", "a group can not stand within a group")
            piece += self._symbol() * self._repetition()
            if len(piece) > MAX_SYMBOLS:
                raise _error(start, "(", f"gives more than {MAX_SYMBOLS} symbols")
        if not piece:
            raise _error(start, "(", "the group is empty")
        self.index += 1
        if self.token != "*":
            raise _error(self.position, self.token, "a group must be followed by *n")
        return piece

    def _repetition(self) -> int:
        if self.token != "*":
            return 1
        position = self.position
        self.index += 1
        if not _COUNT.fullmatch(self.token):
            valid = "must be followed by a whole number of at most 6 digits"
            raise _error(position, "*" + self.token, valid)
        count = int(self.token)
        self.index += 1
        return count


def _error(position: int, token: str, valid: str) -> InputError:
    return InputError("layout", [Fault(f"character {position}", repr(token), valid)])
