"""What a model costs: measured on its stages and between ranks."""

from __future__ import annotations

from schedopt.executor.link import Link, measure_link

__all__ = ["Link", "measure_link"]
