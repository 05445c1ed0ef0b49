"""A service: named streams of samples in, answers out; what is acknowledged is kept, learned once and can be undone."""

from pta.serve.client import Client
from pta.serve.requests import Refused, Result

__all__ = ["Client", "Refused", "Result"]
