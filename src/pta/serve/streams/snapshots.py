"""Snapshots: the states of a stream on the disk, each with the row up to which it learned."""

import logging
import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pta import __version__
from pta.door.files import remove_temporary_files
from pta.engines.gpu.processors import numba_is_installed
from pta.errors import PtaError
from pta.methods import load_adapter
from pta.methods.state_file import read_stream
from pta.serve.journal.data_folder import digest_of, keep_private, make_private_folder, require_whole
from pta.serve.streams.answering import StreamState
from pta.serve.streams.history import History
from pta.serve.streams.served_model import ServedModel

_log = logging.getLogger("pta.serve")
_UNFINISHED = ".{}.safetensors"  # before the digest of its content is known
_KEPT = 2  # of those that lie closer than an interval, the newest


def made_by() -> dict[str, str]:
    """What decides the last bits of a state."""
    return {
        "pta": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "engine": "numba" if numba_is_installed() else "torch",
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


@dataclass(frozen=True)
class SavedState:
    """A snapshot that is on the disk."""

    sequence: int
    time: float
    fingerprint: str  # of the rows in force up to it
    path: Path


class Snapshots:
    """The snapshots of a stream, oldest first; one thread at a time changes them."""

    def __init__(self, folder: Path, served: ServedModel) -> None:
        self._folder, self._served = folder, served
        make_private_folder(folder)
        remove_temporary_files(folder)
        for part in folder.glob(_UNFINISHED.format("[0-9]*")):  # of a killed process
            part.unlink(missing_ok=True)
        found = (_described(path) for path in folder.glob("[0-9]*.safetensors"))
        self.saved = sorted((one for one in found if one is not None), key=lambda one: one.sequence)

    def save(self, state: StreamState, time: float, fingerprint: str, interval: int) -> None:
        """Write a snapshot, and remove those that lie closer together than an interval of samples."""
        part = self._folder / _UNFINISHED.format(f"{state.sequence:020}")
        about = {"sequence": state.sequence, "time": time, "fingerprint": fingerprint, "made_by": made_by()}
        about["touches"] = state.touches.tolist()
        state.adapter.save(part, stream=about)
        keep_private(part)
        path = part.with_name(f"{state.sequence:020}-{digest_of(part.read_bytes())}.safetensors")
        part.replace(path)
        for one in self.saved:
            if one.sequence == state.sequence and one.path != path:
                one.path.unlink(missing_ok=True)
        rest = [one for one in self.saved if one.sequence != state.sequence]
        saved = [*rest, SavedState(state.sequence, time, fingerprint, path)]
        kept, last = [], -interval
        for number, one in enumerate(saved):
            if one.sequence - last >= interval or number >= len(saved) - _KEPT:
                kept.append(one)
                last = one.sequence
            else:
                one.path.unlink(missing_ok=True)
        self.saved = kept

    def newest(self, history: History, until: int) -> StreamState | None:
        """The state of the newest snapshot up to a row that agrees with a history and can be read."""
        for one in reversed(self.saved):
            if one.sequence <= until and one.fingerprint == history.fingerprint(one.sequence):
                try:
                    return self._read(one.path)
                except PtaError as error:
                    _log.warning("%s; an older snapshot is taken", error)
        return None

    def agreeing(self, history: History, after: int) -> list[SavedState]:
        """Those after a row that agree with a history."""
        return [s for s in self.saved if s.sequence > after and s.fingerprint == history.fingerprint(s.sequence)]

    def remove(self, first: int, last: int) -> None:
        """Remove those between two rows, both included."""
        gone = [one for one in self.saved if first <= one.sequence <= last]
        self.saved = [one for one in self.saved if one not in gone]
        for one in gone:
            one.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> StreamState:
        require_whole(path)
        adapter, about = load_adapter(path, self._served.classifier, model=self._served.encoder), read_stream(path)
        if about["made_by"] != made_by():
            before, now = (", ".join(one.values()) for one in (about["made_by"], made_by()))
            _log.warning("%s was learned with %s; here, with %s, answers agree up to rounding", path, before, now)
        return StreamState(adapter, np.array(about["touches"], np.int64), about["sequence"])


def _described(path: Path) -> SavedState | None:
    try:
        about = read_stream(path)
        return SavedState(int(path.stem.partition("-")[0]), float(about["time"]), str(about["fingerprint"]), path)
    except (PtaError, ValueError, TypeError, KeyError) as error:
        _log.warning("%s is not used: %s", path, error)
        return None
