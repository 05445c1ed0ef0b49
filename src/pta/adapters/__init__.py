"""The methods: one paper, one file, one class. Importing a method's module registers it."""

from pta.adapters.base import Adapter, create_adapter, list_adapters, load_adapter
from pta.adapters.clip import CLIP
from pta.adapters.pta import PTA

__all__ = ["CLIP", "PTA", "Adapter", "create_adapter", "list_adapters", "load_adapter"]
