"""The cache: the best known schedule and bound of every problem that was solved, one file each."""

from schedopt.cache.entry import Entry
from schedopt.cache.folder import FOLDER_VARIABLE, Cache
from schedopt.cache.key import problem_key

__all__ = ["FOLDER_VARIABLE", "Cache", "Entry", "problem_key"]
