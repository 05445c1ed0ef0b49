"""Monitors of a stream: what is measured, alarms with stated rates, and reactions. Functions of tensors, no server."""

from pta.monitor.alarms import KINDS, Alarm
from pta.monitor.monitor import Monitor, takes_order
from pta.monitor.reactions import REACTIONS, Guard, parse_reactions
from pta.monitor.reference import Reference
from pta.monitor.stepping import Piece, watched_steps

__all__ = [
    "KINDS",
    "REACTIONS",
    "Alarm",
    "Guard",
    "Monitor",
    "Piece",
    "Reference",
    "parse_reactions",
    "takes_order",
    "watched_steps",
]
