"""Monitors of a stream: what is measured, alarms with stated rates, and reactions. Functions of tensors, no server."""

from pta.monitor.alarms import Alarm
from pta.monitor.monitor import Monitor, takes_order
from pta.monitor.reactions import StreamGuard, parse_reactions
from pta.monitor.reference import ScoreReference
from pta.monitor.stepping import watched_steps

__all__ = ["Alarm", "Monitor", "ScoreReference", "StreamGuard", "parse_reactions", "takes_order", "watched_steps"]
