"""Trains the packaged dual encoder of clouds on procedural shapes and furniture, against captions.

With `--trials` every setting is first trained without a quarter of the furniture, and the one that does best on it and
on procedural validation shapes is trained on all. The test shapes are looked at once, after the final training.
"""

import argparse
import math
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from captions import draw_captions, training_templates
from contrast import CaptionBank, contrastive_loss, optimiser_of, warm_cosine
from numpy.typing import NDArray
from shape_captions import ENDINGS, NOUNS, OPENINGS, VALIDATION_TEMPLATES
from shapes.draw import Split, draw_shape
from torch import Tensor
from torch.nn.functional import normalize

from pta.data.packaged_clouds import FURNITURE_CLASSES, POINTS, SHAPE_CLASSES, from_stored, load_furniture_test
from pta.data.shifts.points import CORRUPTIONS, corrupt_points
from pta.door.points.cloud import Cloud
from pta.models.packaged.embedded import MAX_SCALE
from pta.models.packaged.embedded_points import POINT_TEMPLATES, EmbeddedPointsConfig, EmbeddedPointsEncoder

BATCH = 128
FURNITURE_SHARE = 0.5  # of a batch
PEAK_RATE = 1e-3
MOST_STRETCH = 1.5  # of each axis, up or down
SIZES = (0.85, 1.1)
MOST_SHIFT = 0.1
CAPTIONS_PER_CLASS = 2000
HELD_BACK: dict[Split, int] = {"validation": 1040, "test": 2000}  # procedural shapes
HELD_OUT = 4  # in trials, one of so many groups of furniture validates
SEVERITY = 2  # the one of the paper's main table
LICENCE = (
    "Apache-2.0; trained on procedural shapes and on furniture models under CC0-1.0, CC-BY-3.0 and CC-BY-3.0-US, whose "
    "authors are listed in pta/assets/furniture.csv"
)


@dataclass(frozen=True)
class Setting:
    """What trials choose among."""

    most_turn: float  # degrees about the vertical, to either side
    config: EmbeddedPointsConfig = field(default_factory=EmbeddedPointsConfig)


SETTINGS = {
    "turned": Setting(180),
    "upright": Setting(20),
    "plain": Setting(20, EmbeddedPointsConfig(strides=(1, 1, 1))),
    "wide": Setting(20, EmbeddedPointsConfig(widths=(64, 128, 256), token_width=256)),
}


@dataclass(frozen=True)
class Clouds:
    """Clouds (N×n×3, of which a step draws 1,024 points each) and labels on the training device."""

    points: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, chosen: Tensor | slice) -> "Clouds":
        return Clouds(self.points[chosen], self.labels[chosen])

    def to(self, device: torch.device) -> "Clouds":
        return Clouds(self.points.to(device), self.labels.to(device))


def between(low: float, high: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Uniform draws on the device of a tensor."""
    return torch.empty(shape, device=like.device).uniform_(low, high)


def sampled(points: Tensor) -> Tensor:
    """1,024 random points of each cloud."""
    order = torch.rand(points.shape[:2], device=points.device).topk(POINTS).indices
    return points.gather(1, order[..., None].expand(-1, -1, 3))


def normalised(points: Tensor) -> Tensor:
    """Each cloud about its mean, the farthest point at distance 1."""
    centred = points - points.mean(dim=1, keepdim=True)
    return centred / centred.norm(dim=-1).amax(dim=1)[:, None, None]


def augment(points: Tensor, most_turn: float) -> Tensor:
    """Each cloud stretched along its axes, turned about the vertical, scaled and shifted; no corruption beyond that."""
    n = len(points)
    stretch = between(-1, 1, (n, 1, 3), points) * math.log(MOST_STRETCH)
    angles = between(-1, 1, (n,), points) * math.radians(most_turn)
    zero, cos, sin = torch.zeros_like(angles), angles.cos(), angles.sin()
    turn = torch.stack([cos, zero, sin, zero, zero + 1, zero, -sin, zero, cos], dim=-1).reshape(n, 3, 3)
    turned = normalised((points * stretch.exp()) @ turn)
    return turned * between(*SIZES, (n, 1, 1), points) + between(-MOST_SHIFT, MOST_SHIFT, (n, 1, 3), points)


def train(
    setting: Setting, sources: Sequence[Clouds], steps: int, seconds: float, seed: int, device: torch.device
) -> tuple[EmbeddedPointsEncoder, int]:
    """An encoder trained on furniture and procedural shapes, and the steps it took: fewer if the time ends before."""
    torch.manual_seed(seed)
    encoder = EmbeddedPointsEncoder(setting.config).to(device).train()
    rng, phrases = np.random.default_rng(seed), {"openings": OPENINGS, "endings": ENDINGS}
    captions = [draw_captions(name, NOUNS[name], CAPTIONS_PER_CLASS, rng, **phrases) for name in SHAPE_CLASSES]
    bank, optimiser = CaptionBank.of(encoder, captions), optimiser_of(encoder, PEAK_RATE)
    counts = [round(BATCH * FURNITURE_SHARE), BATCH - round(BATCH * FURNITURE_SHARE)]
    began, total, step = time.monotonic(), torch.zeros((), device=device), 0
    done = 0.0
    while done < 1:
        parts = [
            source.at(torch.randint(len(source), (count,), device=device))
            for source, count in zip(sources, counts, strict=True)
        ]
        labels = torch.cat([part.labels for part in parts])
        clouds = augment(torch.cat([sampled(part.points) for part in parts]), setting.most_turn)
        ids, mask = bank.sample(labels)
        text_features = encoder.text_from_embeddings(encoder.embed_ids(ids), mask)
        loss = contrastive_loss(encoder.features(clouds), text_features, encoder.log_scale.exp(), labels)
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * warm_cosine(done, 1 / steps)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()
        encoder.log_scale.data.clamp_(max=math.log(MAX_SCALE))
        total += loss.detach()
        step += 1
        done = max(step / steps, (time.monotonic() - began) / seconds)
        if step % 200 == 0 or done >= 1:
            print(
                f"  step {step:5d}, {100 * min(done, 1):3.0f} %  mean loss {total.item() / (step % 200 or 200):.4f}  "
                f"scale {encoder.scale:5.1f}  {time.monotonic() - began:.0f} s",
                flush=True,
            )
            total.zero_()
    for parameter in encoder.parameters():
        parameter.data = parameter.data.half().float()  # measure what users will have
    return encoder.eval(), step


def accuracy(
    encoder: EmbeddedPointsEncoder, clouds: Clouds, names: Sequence[str], templates: Sequence[str] = POINT_TEMPLATES
) -> float:
    """In percent, of the classifier whose anchors are the class names in these templates."""
    texts = [template.format(name) for name in names for template in templates]
    anchors = normalize(encoder.encode_texts(texts).unflatten(0, (len(names), len(templates))).mean(1), dim=-1)
    answers = (encoder.encode(clouds.points) @ anchors.T).argmax(dim=1)
    return 100 * (answers == clouds.labels.to(answers.device)).float().mean().item()


def corrupted_accuracies(encoder: EmbeddedPointsEncoder, clouds: Clouds, names: Sequence[str]) -> dict[str, float]:
    """Accuracy on clean clouds, under each corruption and in the mean of these, with the templates of the package."""
    found = {"clean": accuracy(encoder, clouds, names)}
    for corruption in CORRUPTIONS:
        given = enumerate(clouds.points.cpu().numpy())
        made = np.stack([corrupt_points(one, corruption, SEVERITY, seed=1, number=number) for number, one in given])
        found[corruption] = accuracy(encoder, Clouds(torch.from_numpy(made).float(), clouds.labels), names)
    return found | {"mean of corruptions": sum(found[name] for name in CORRUPTIONS) / len(CORRUPTIONS)}


def procedural(count: int, split: Split) -> Clouds:
    """The first procedural shapes of a split."""
    with ProcessPoolExecutor() as workers:
        drawn = list(workers.map(partial(_drawn, split=split), range(count), chunksize=50))
    return Clouds(
        torch.from_numpy(np.stack([cloud for cloud, _ in drawn])), torch.tensor([label for _, label in drawn])
    )


def _drawn(number: int, split: Split) -> tuple[Cloud, int]:
    shape = draw_shape(number, split)
    return shape.cloud(), shape.label


def furniture(folder: Path) -> tuple[Clouds, NDArray[np.int64]]:
    """The training half of the furniture, and the group of each object."""
    with np.load(folder / "furniture.npz", allow_pickle=False) as arrays:
        points, labels = from_stored(arrays["clouds"]), arrays["labels"].astype(np.int64)
        return Clouds(torch.from_numpy(points), torch.from_numpy(labels)), arrays["groups"]


def halves(objects: Clouds, groups: NDArray[np.int64], seed: int) -> tuple[Clouds, Clouds]:
    """Objects to train and to validate on; a group is in one of them, and every class with two groups in both."""
    rng, held = np.random.default_rng(seed), np.zeros(len(groups), bool)
    labels = objects.labels.cpu().numpy()
    for label in np.unique(labels):
        own = rng.permutation(np.unique(groups[labels == label]))
        held |= np.isin(groups, own[: len(own) // HELD_OUT or len(own) // 2])
    chosen = [torch.from_numpy(np.flatnonzero(part)).to(objects.labels.device) for part in (~held, held)]
    return objects.at(chosen[0]), objects.at(chosen[1])


def validated(encoder: EmbeddedPointsEncoder, objects: Clouds, shapes: Clouds, seed: int) -> tuple[float, float]:
    """Accuracy on furniture, each object sampled four times, and on procedural shapes."""
    torch.manual_seed(seed)
    four = Clouds(normalised(sampled(objects.points.repeat(4, 1, 1))), objects.labels.repeat(4))
    return (
        accuracy(encoder, four, FURNITURE_CLASSES, VALIDATION_TEMPLATES),
        accuracy(encoder, shapes, SHAPE_CLASSES, VALIDATION_TEMPLATES),
    )


def main() -> None:
    """Choose, train, write, and test what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--furniture", type=Path, default=Path("training/carried"), help="folder with furniture.npz")
    parser.add_argument("--out", type=Path, default=Path("src/pta/assets/embedded-points.safetensors"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1964, help="as many as the packaged model was trained for")
    parser.add_argument("--minutes", type=float, default=60, help="for all trainings together; they end earlier then")
    parser.add_argument("--procedural", type=int, default=20_000, help="how many procedural shapes to train on")
    parser.add_argument("--trials", nargs="*", choices=SETTINGS, help="choose among these settings, or among all")
    parser.add_argument("--setting", choices=SETTINGS, default="upright", help="what to train without trials")
    parser.add_argument("--quick", action="store_true", help="test on a few clouds only: to see that it runs")
    arguments = parser.parse_args()
    seen = training_templates(OPENINGS, ENDINGS) & {*POINT_TEMPLATES, *VALIDATION_TEMPLATES}
    if seen:
        raise SystemExit(f"held-out templates occur in training: {sorted(seen)}; reword them")

    began, device, seed = time.monotonic(), torch.device(arguments.device), arguments.seed
    few = slice(26 if arguments.quick else None)
    drawn = {split: procedural(count, split) for split, count in (("train", arguments.procedural), *HELD_BACK.items())}
    objects, groups = furniture(arguments.furniture)
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU ({platform.machine()})"
    objects, shapes = objects.to(device), drawn["train"].to(device)
    print(f"{len(objects)} objects, {len(shapes):,} shapes, {hardware}, {time.monotonic() - began:.0f} s", flush=True)
    names = list(SETTINGS) if arguments.trials == [] else arguments.trials or []
    seconds = 60 * arguments.minutes / (1 + len(names))
    setting, validation = arguments.setting, {}
    if names:
        trained_on, held_out = halves(objects, groups, seed)
        for name in names:
            print(f"trial of {name}: {len(trained_on)} objects, {len(held_out)} held out", flush=True)
            encoder, _ = train(SETTINGS[name], [trained_on, shapes], arguments.steps, seconds, seed, device)
            validation[name] = validated(encoder, held_out.at(few), drawn["validation"].at(few), seed)
            print(f"  furniture {validation[name][0]:.2f} %, procedural {validation[name][1]:.2f} %", flush=True)
        setting = max(validation, key=lambda name: sum(validation[name]))
    print(f"final training of {setting}", flush=True)
    encoder, steps = train(SETTINGS[setting], [objects, shapes], arguments.steps, seconds, seed, device)

    test = load_furniture_test()
    torch.manual_seed(seed)
    measured = {
        "furniture, test": (Clouds(torch.from_numpy(test.clouds), torch.from_numpy(test.labels)), FURNITURE_CLASSES),
        "furniture, train": (Clouds(normalised(sampled(objects.points)), objects.labels), FURNITURE_CLASSES),
        "procedural, test": (drawn["test"], SHAPE_CLASSES),
        "procedural, train": (shapes.at(slice(len(drawn["test"]))), SHAPE_CLASSES),
    }
    accuracies = {
        name: corrupted_accuracies(encoder, clouds.at(few), names) for name, (clouds, names) in measured.items()
    }
    for name, found in accuracies.items():
        print(f"{name}: " + ", ".join(f"{kind} {value:.2f}" for kind, value in found.items()), flush=True)
    encoder.write(
        arguments.out,
        accuracies={name: {k: round(v, 2) for k, v in found.items()} for name, found in accuracies.items()},
        hardware=hardware,
        licence=LICENCE,
        seed=seed,
        setting=setting,
        severity=SEVERITY,
        steps=steps,
        torch=torch.__version__,
        training_objects=len(objects),
        training_shapes=len(shapes),
        validation_accuracies={name: [round(one, 2) for one in pair] for name, pair in validation.items()},
    )
    size = sum(parameter.numel() for parameter in encoder.parameters())
    bytes_written = arguments.out.stat().st_size
    print(f"{arguments.out}: {size:,} parameters, {bytes_written:,} bytes, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
