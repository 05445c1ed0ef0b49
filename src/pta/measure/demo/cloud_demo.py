"""Run the demonstration on point clouds, without a screen."""

from collections.abc import Callable

import torch

from pta.core.parameters import require_count, require_seed
from pta.core.samples import Samples
from pta.data.features import FeatureFile
from pta.data.point_shapes import corrupted, load_shapes
from pta.data.prompts import build_classifier
from pta.door.points.corrupted_sizes import require_corruption
from pta.measure.demo.cloud_pictures import still_cloud, turning_cloud
from pta.measure.demo.exhibit import Exhibit
from pta.measure.demo.result import DemoResult
from pta.measure.demo.run_demo import encode_all, on_one_thread, run_methods
from pta.models.packaged.embedded_points import POINT_TEMPLATES, EmbeddedPointsEncoder

PTA_H = 50.0  # as the paper's program has it for clouds
MOST_SHOWN = 520  # clouds: all furniture, and 20 procedural shapes of each class
_OTHERS = ("point-cache", "wpta", "tda", "sca", "onzeta", "bca", "adapt")
_ENCODE_BATCH = 20  # small, so that a progress bar moves
_ORIGINS = {
    "procedural": "{} shapes that pta drew itself: composed solids of 26 classes with random proportions and parts",
    "furniture": "{} clouds of freely licensed models from Sweet Home 3D’s catalogues (authors and licences: "
    "pta/assets/furniture.csv)",
}


@on_one_thread()
def run_cloud_demo(
    source: str = "furniture",
    shift: str = "jitter",
    severity: int = 2,
    seed: int = 1,
    *,
    limit: int | None = None,
    on_encoded: Callable[[int, int], None] | None = None,
) -> DemoResult:
    """The clouds of a source, or the first `limit`, under a corruption, labelled by all methods in the same order.

    The seed draws the corruption's randomness and the order. `on_encoded` is told how many clouds of how many are
    encoded.
    """
    require_seed(seed)
    require_corruption(shift, severity)
    test = load_shapes(source)
    if limit is not None:
        require_count("limit", limit, 1, len(test))
    originals = test.clouds[: limit or MOST_SHOWN]
    clouds = corrupted(originals, (shift, severity), seed)

    encoder = EmbeddedPointsEncoder.load()
    classifier = build_classifier(encoder, test.class_names, POINT_TEMPLATES)
    tensors = [torch.from_numpy(cloud).float() for cloud in clouds]
    batches = [torch.stack(tensors[start : start + _ENCODE_BATCH]) for start in range(0, len(tensors), _ENCODE_BATCH)]
    encoded, speed = encode_all(batches, encoder.encode_with_tokens, on_encoded)
    features, patches = (torch.cat(parts) for parts in zip(*encoded, strict=True))
    samples = Samples.of(features, patches=patches)
    data = FeatureFile(f"point_shapes/{source}/{shift}/{severity}", samples, classifier, test.labels[: len(clouds)])
    runs = run_methods(data, int(seed), {"h": PTA_H}, _OTHERS)
    given = (shift, int(severity), int(seed), limit)
    return DemoResult(*given, originals, clouds, data, encoder.fingerprint, speed, *runs, _exhibit(source))


def _exhibit(source: str) -> Exhibit:
    return Exhibit(
        thing="cloud",
        title="Point clouds, labelled by a small ULIP-like model",
        command=f"pta demo --modality points --source {source}",
        call=f'run_cloud_demo("{source}", ',
        severities="of 0 to 4",
        templates=POINT_TEMPLATES,
        origin=_ORIGINS[source],
        model="embedded-points, trained on procedural shapes and other furniture: a small model that knows nothing "
        "else, so these numbers say nothing about ULIP itself",
        still=still_cloud,
        shown=turning_cloud,
    )
