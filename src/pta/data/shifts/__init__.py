"""Shifted data, made from clean data."""

from pta.data.shifts.images import SHIFTS, apply_shift

__all__ = ["SHIFTS", "apply_shift"]
