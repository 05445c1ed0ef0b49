"""One stream on many machines: cut into blocks by sample number, computed in parallel, equal to a single process."""

from pta.cluster.blocks.block import Block, cut
from pta.cluster.blocks.bound import contraction, error_bounds
from pta.cluster.blocks.loop import BlockRun, run_blocks
from pta.cluster.blocks.repair import EPSILON, mismatches, repair_block
from pta.cluster.blocks.replay import BlockAnswers, replay_block
from pta.cluster.blocks.scanning import across, boundary, require_summable, scan, start_of, summarise_block
from pta.cluster.blocks.summary import BlockSummary

__all__ = [
    "EPSILON",
    "Block",
    "BlockAnswers",
    "BlockRun",
    "BlockSummary",
    "across",
    "boundary",
    "contraction",
    "cut",
    "error_bounds",
    "mismatches",
    "repair_block",
    "replay_block",
    "require_summable",
    "run_blocks",
    "scan",
    "start_of",
    "summarise_block",
]
