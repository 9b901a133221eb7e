"""Runs schedules on devices with PyTorch: the only part of the package that imports torch."""
