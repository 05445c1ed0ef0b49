"""The frozen classifier of PTA's released rule as one matrix: z + scale·R·f = scale·(T + R)·f + 2·bias."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.door.files import pack_tensors
from pta.errors import StateMismatch
from pta.methods import Adapter
from pta.methods.pta import PTA
from pta.run.export.agreement import require_agreement, samples_near
from pta.run.export.frozen_head import require_frozen
