"""ULIP: Learning a Unified Representation of Language, Images, and Point Clouds (CVPR 2023).

https://arxiv.org/abs/2212.05171, https://github.com/salesforce/ULIP

PointBERT reads clouds, the text tower of SLIP reads texts. Two files of the same architecture are called ULIP-1 and
ULIP-2 by Point-Cache; Salesforce's own ULIP-2 is another model, which is refused.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pta.door.points.groups import Sampling, farthest_points, nearest_points
from pta.door.weights.weights import read_weights
from pta.errors import UnavailableModel, UnreadableFile, naming
from pta.models.clip.encoder import ClipText
from pta.models.clip.state_dict import State, fill, shape_of
from pta.models.clouds.cloud_encoder import LOCAL_FEATURES, TokenCloudEncoder
from pta.models.clouds.pointbert import PointBert

GROUPS, GROUP_SIZE = 512, 32

POINT_FILES = {"pointbert_ulip1.pt": "ULIP (PointBERT)", "pointbert_ulip2.pt": "ULIP-2 (PointBERT, SLIP texts)"}
"""The files that a folder may hold, with what they hold; the paper uses the first."""

TEXT_FILE = "slip_base_100ep.pt"

_LEGACY = "#legacy"  # behind a path

_POINT_WEIGHTS = ("point_encoder.", "pc_projection")
_TEXT_WEIGHTS = (
    "token_embedding.",
    "positional_embedding",
    "transformer.",
    "ln_final.",
    "text_projection",
    "logit_scale",
)


class UlipEncoder(ClipText, TokenCloudEncoder):
    """A ULIP model made from its weights, copied in float32."""

    scale = 100.0  # as released, whatever the weight `logit_scale` is
    least_points = GROUP_SIZE

    def __init__(
        self, state: State, *, architecture: str = "ULIP (PointBERT)", sampling: Sampling = "deterministic"
    ) -> None:
        super().__init__()
        self.architecture, self.sampling = architecture, sampling
        self.settings = (GROUPS, GROUP_SIZE, LOCAL_FEATURES, sampling)
        _refuse_coloured(state)
        _, self.dim = shape_of(state, "pc_projection", 2)
        with torch.device("meta"):
            self.point_encoder = PointBert(state, "point_encoder.")
            self.pc_projection = nn.Parameter(torch.empty(2 * self.point_encoder.width, self.dim))
            self._build_text_tower(state, dim=self.dim, head_width=64, quick_gelu=True)
        fill(self, {name: one.to(_dtype_of(name), copy=True) for name, one in state.items()})
        self.eval().requires_grad_(False)

    def _project(self, summary: Tensor, pooled: Tensor) -> Tensor:
        return normalize(torch.cat([summary, pooled], dim=-1) @ self.pc_projection, dim=-1)

    def _tokens(self, clouds: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """Clouds N×n×3 to class tokens N×width and group tokens N×groups×width."""
        if self.sampling == "legacy":
            clouds = clouds.half()
            chosen = torch.cat(
                [farthest_points(one[None], GROUPS, sampling="legacy", generator=_of(one)) for one in clouds]
            )
        else:
            chosen = farthest_points(clouds, GROUPS, sampling=self.sampling)
        centres = clouds.take_along_dim(chosen[..., None], dim=1)
        near = nearest_points(clouds, centres, GROUP_SIZE)
        points = clouds.take_along_dim(near.flatten(1)[..., None], dim=1).reshape(*near.shape, 3)
        tokens = self.point_encoder((points - centres[:, :, None]).to(self.dtype), centres.to(self.dtype))
        return [(tokens[:, 0], tokens[:, 1:])]


def _dtype_of(name: str) -> torch.dtype:
    return torch.int64 if name.endswith(".num_batches_tracked") else torch.float32


def _of(cloud: Tensor) -> torch.Generator:
    """What draws the first centre: the same for the same cloud, in whatever batch and whenever it comes."""
    return torch.Generator().manual_seed(zlib.crc32(cloud.cpu().numpy().tobytes()))


def _refuse_coloured(state: State) -> None:
    _, channels, _ = shape_of(state, "point_encoder.encoder.first_conv.0.weight", 3)
    _, dim = shape_of(state, "pc_projection", 2)
    if channels == 6 or dim == 1280:
        raise UnavailableModel(
            f"it is Salesforce's coloured ULIP-2 ({channels} channels per point, {dim} dimensions), with the texts "
            f"of OpenCLIP's ViT-bigG-14; ulip: reads xyz with the texts of SLIP, as in {' and '.join(POINT_FILES)}"
        )


def load_ulip(place: str) -> UlipEncoder:
    """The model in a folder with PointBERT and SLIP, or of one file of PointBERT beside SLIP, in float32.

    Of two files in the folder the first of `POINT_FILES` is taken. `#legacy` behind the path chooses the released
    sampling: a random first centre for each cloud, and distances in half precision.
    """
    stem = place.removesuffix(_LEGACY)
    points = _point_file(Path(stem).expanduser())
    texts = points.with_name(TEXT_FILE)
    if not texts.is_file():
        raise UnreadableFile(f"{points.parent} holds no {TEXT_FILE}, which reads ULIP's texts; put it there")
    state = _weights(points, _POINT_WEIGHTS) | _weights(texts, _TEXT_WEIGHTS)
    with naming(f"cannot load {points} and {TEXT_FILE} as a ULIP model"):
        architecture = POINT_FILES.get(points.name, points.stem)
        return UlipEncoder(state, architecture=architecture, sampling="deterministic" if stem == place else "legacy")


def _point_file(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise UnreadableFile(
            f"no such folder or file: {place}; ulip:FOLDER has {TEXT_FILE} and {' or '.join(POINT_FILES)}"
        )
    for name in POINT_FILES:
        if (place / name).is_file():
            return place / name
    raise UnreadableFile(
        f"{place} holds neither {' nor '.join(POINT_FILES)}; name another file as ulip:{place}/FILE.pt"
    )


def _weights(file: Path, kept: tuple[str, ...]) -> dict[str, Tensor]:
    named = {name.removeprefix("module."): one for name, one in read_weights(file).tensors.items()}
    return {name: one for name, one in named.items() if name.startswith(kept)}
