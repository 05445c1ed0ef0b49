"""Augmented views of one picture, and what is made of the features of many."""

from pta.data.views.making import MODES, MOST_VIEWS, Mode, make_views
from pta.data.views.selection import confident_mean

__all__ = ["MODES", "MOST_VIEWS", "Mode", "confident_mean", "make_views"]
