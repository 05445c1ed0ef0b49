"""The methods: one paper, one file. Importing a method's module registers it."""

from pta.adapters.adapt import ADAPT, TransductiveADAPT
from pta.adapters.adapter import Adapter, create_adapter, list_adapters, load_adapter
from pta.adapters.bca import BCA
from pta.adapters.boostadapter import BoostAdapter
from pta.adapters.clip import CLIP
from pta.adapters.combined import Combined
from pta.adapters.dota import DOTA
from pta.adapters.freetta import FreeTTA
from pta.adapters.mta import MTA
from pta.adapters.oga import OGA
from pta.adapters.onzeta import OnZeta
from pta.adapters.pta import PTA
from pta.adapters.sca import SCA
from pta.adapters.stata import StatA
from pta.adapters.tca import TCA
from pta.adapters.tda import TDA
from pta.adapters.transclip import TransCLIP
from pta.adapters.zero import ZERO

__all__ = [
    "ADAPT",
    "BCA",
    "CLIP",
    "DOTA",
    "MTA",
    "OGA",
    "PTA",
    "SCA",
    "TCA",
    "TDA",
    "ZERO",
    "Adapter",
    "BoostAdapter",
    "Combined",
    "FreeTTA",
    "OnZeta",
    "StatA",
    "TransCLIP",
    "TransductiveADAPT",
    "create_adapter",
    "list_adapters",
    "load_adapter",
]
