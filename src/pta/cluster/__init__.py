"""One stream on many machines: cut into blocks by sample number, computed in parallel, equal to a single process."""

from pta.cluster.block import USUAL_SIZE, Block, cut
from pta.cluster.driver import Run, run_blocks
from pta.cluster.repair import EPSILON, Repaired, mismatches, repair_block
from pta.cluster.replay import Answers, replay_block
from pta.cluster.scanning import GROUP, Before, across, boundary, scan, start_of
from pta.cluster.summary import State, Summary, require_summable, summarise_block

__all__ = [
    "EPSILON",
    "GROUP",
    "USUAL_SIZE",
    "Answers",
    "Before",
    "Block",
    "Repaired",
    "Run",
    "State",
    "Summary",
    "across",
    "boundary",
    "cut",
    "mismatches",
    "repair_block",
    "replay_block",
    "require_summable",
    "run_blocks",
    "scan",
    "start_of",
    "summarise_block",
]
