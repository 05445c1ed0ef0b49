"""A run: what a folder of blocks is made from, so that the same command goes on and another is refused."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pta.cluster.ray.storage import Folder
from pta.errors import StateMismatch, UnreadableFile

ABOUT = "about.json"


def run_id(inputs: Mapping[str, Any]) -> str:
    """The same for the same inputs, block size included."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class RunFolder:
    """A kind of blocks in a folder, made from inputs."""

    kind: str
    out: Folder
    inputs: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", json.loads(json.dumps(self.inputs)))  # as they will be read back

    @property
    def id(self) -> str:
        """What blocks of this run carry."""
        return run_id(self.inputs)

    def begin(self, *, replace: bool = False) -> dict[str, Any]:
        """Refuse a folder that holds another run; give what is known about this one, if it was begun before."""
        if self.out.has(ABOUT) and not replace:
            known = read_run(self.out, self.kind)
            if known["run"] != self.id:
                other = ", ".join(_differing(known["inputs"], self.inputs))
                raise StateMismatch(
                    f"{self.out.address} holds a run with another {other or 'version'}; "
                    "choose another folder, or remove that one"
                )
            return known
        self.out.write_json(ABOUT, self._about({}, finished=False))
        return {}

    def finish(self, record: Mapping[str, Any]) -> None:
        """Note what was done, after the last block."""
        self.out.write_json(ABOUT, self._about(record, finished=True))

    def _about(self, record: Mapping[str, Any], *, finished: bool) -> dict[str, Any]:
        own = {"kind": self.kind, "version": 1, "run": self.id, "inputs": self.inputs, "finished": finished}
        return {**record, **own}


def read_run(folder: Folder, kind: str) -> dict[str, Any]:
    """What the run in a folder says about itself."""
    about = folder.read_json(ABOUT)
    if not isinstance(about, dict) or about.get("kind") != kind or not isinstance(about.get("inputs"), dict):
        raise UnreadableFile(f"{folder.path(ABOUT)} does not describe {kind}; choose another folder")
    if about.get("version") != 1 or about.get("run") != run_id(about["inputs"]):
        raise UnreadableFile(f"{folder.path(ABOUT)} is damaged or of another version of pta")
    return about


def _differing(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted({**known, **wanted}) if known.get(name) != wanted.get(name)]
