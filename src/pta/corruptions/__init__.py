"""Shifted data, made from clean data."""

from pta.corruptions.shifts import SHIFTS, apply_shift

__all__ = ["SHIFTS", "apply_shift"]
