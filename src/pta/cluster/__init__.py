"""One stream on many machines: cut into blocks by sample number, computed in parallel, equal to a single process."""

from pta.cluster.blocks.block import USUAL_SIZE, Block, cut, require_whole_stream
from pta.cluster.blocks.bound import contraction, error_bounds
from pta.cluster.blocks.loop import BlockRun, run_blocks
from pta.cluster.blocks.repair import EPSILON, Repaired, mismatches, repair_block
from pta.cluster.blocks.replay import BlockAnswers, replay_block
from pta.cluster.blocks.scanning import (
    GROUP,
    Before,
    across,
    boundary,
    require_summable,
    scan,
    start_of,
    summarise_block,
)
from pta.cluster.blocks.summary import BlockGroup, BlockSummary, State

__all__ = [
    "EPSILON",
    "GROUP",
    "USUAL_SIZE",
    "Before",
    "Block",
    "BlockAnswers",
    "BlockGroup",
    "BlockRun",
    "BlockSummary",
    "Repaired",
    "State",
    "across",
    "boundary",
    "contraction",
    "cut",
    "error_bounds",
    "mismatches",
    "repair_block",
    "replay_block",
    "require_summable",
    "require_whole_stream",
    "run_blocks",
    "scan",
    "start_of",
    "summarise_block",
]
