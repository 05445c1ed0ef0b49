"""Trains the packaged dual encoder on Fashion-MNIST: images against captions, contrastively.

Every choice looks at 5,000 validation images split from the training file. The test images are read once,
after the final training, for the accuracy that is stored with the weights; `--trial` leaves them alone.
"""

import argparse
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from captions import NOUNS, VALIDATION_TEMPLATES, draw_captions, training_templates
from contrast import CaptionBank, contrastive_loss, optimiser_of, warm_cosine
from fashion_idx import read_fashion
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, normalize, pad

from pta.data.fashion import CLASS_NAMES
from pta.models.packaged.embedded import EMBEDDED_TEMPLATES, MAX_SCALE, EmbeddedEncoder

VALIDATION = 5000
BATCH = 512
PEAK_RATE = 1e-3
MAX_SHIFT = 2  # pixels; with the mirror this is all the augmentation, so that the demo's shifts stay unseen
CAPTIONS_PER_CLASS = 4000
LICENCE = "Apache-2.0; trained on Fashion-MNIST, Copyright 2017 Zalando SE, MIT licence"


@dataclass(frozen=True)
class Labelled:
    """Images (uint8 N×28×28) and labels on the training device."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def augment(images: Tensor) -> Tensor:
    """Each image mirrored or not and moved by up to `MAX_SHIFT` pixels, with black coming in."""
    n, height, width = images.shape
    device = images.device
    mirrored = torch.rand(n, 1, 1, device=device) < 0.5
    padded = pad(torch.where(mirrored, images.flip(-1), images), [MAX_SHIFT] * 4)
    down, right = torch.randint(2 * MAX_SHIFT + 1, (2, n, 1), device=device)
    rows = down + torch.arange(height, device=device)
    columns = right + torch.arange(width, device=device)
    return padded[torch.arange(n, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def train(encoder: EmbeddedEncoder, data: Labelled, validation: Labelled, epochs: int, seed: int) -> None:
    """Fit the encoder in place."""
    rng = np.random.default_rng(seed)
    captions = [draw_captions(name, NOUNS[name], CAPTIONS_PER_CLASS, rng) for name in CLASS_NAMES]
    bank, optimiser = CaptionBank.of(encoder, captions), optimiser_of(encoder, PEAK_RATE)
    batches = max(1, len(data) // BATCH)
    steps = epochs * batches
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: warm_cosine(step / steps, 1 / steps))
    device = data.images.device
    began = time.monotonic()
    for epoch in range(1, epochs + 1):
        encoder.train()
        total = torch.zeros((), device=device)
        for chosen in torch.randperm(len(data), device=device)[: batches * BATCH].chunk(batches):
            labels = data.labels[chosen]
            pixels = encoder.preprocess.normalise(augment(data.images[chosen])[:, None])
            ids, mask = bank.sample(labels)
            image_features = encoder.features(pixels)
            text_features = encoder.text_from_embeddings(encoder.embed_ids(ids), mask)
            loss = contrastive_loss(image_features, text_features, encoder.log_scale.exp(), labels)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            encoder.log_scale.data.clamp_(max=math.log(MAX_SCALE))
            total += loss.detach()
        accuracy, surprise = zero_shot(encoder, validation, VALIDATION_TEMPLATES)
        print(
            f"epoch {epoch:3d}/{epochs}  loss {total.item() / batches:.4f}  scale {encoder.scale:5.1f}  "
            f"validation accuracy {accuracy:.4f}, log loss {surprise:.4f}  {time.monotonic() - began:.0f} s",
            flush=True,
        )


def zero_shot(encoder: EmbeddedEncoder, data: Labelled, templates: tuple[str, ...]) -> tuple[float, float]:
    """Accuracy and mean log loss of the classifier whose anchors are the class names in these templates."""
    encoder.eval()
    texts = [template.format(name) for name in CLASS_NAMES for template in templates]
    prompts = encoder.encode_texts(texts).unflatten(0, (len(CLASS_NAMES), len(templates)))
    anchors = normalize(prompts.mean(1), dim=-1)
    logits = encoder.scale * encoder.encode(data.images[:, None]) @ anchors.T
    accuracy = (logits.argmax(1) == data.labels).float().mean().item()
    return accuracy, cross_entropy(logits, data.labels).item()


def read(folder: Path, part: str, device: torch.device) -> Labelled:
    """One part of Fashion-MNIST, on the device."""
    images, labels = read_fashion(folder, part)
    return Labelled(torch.tensor(images, device=device), torch.tensor(labels, device=device).long())


def split(data: Labelled, limit: int | None, seed: int) -> tuple[Labelled, Labelled]:
    """Training and validation images: disjoint, drawn by the seed."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(data))).to(data.labels.device)
    held_out, used = order[:VALIDATION], order[VALIDATION:][:limit]
    return (
        Labelled(data.images[used], data.labels[used]),
        Labelled(data.images[held_out], data.labels[held_out]),
    )


def make_deterministic(seed: int) -> None:
    """The same seed on the same machine gives the same weights, as far as torch can promise that."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by CUDA at its start
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(seed)


def main() -> None:
    """Train, write, and test what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the four .gz files")
    parser.add_argument("--out", type=Path, default=Path("src/pta/assets/embedded.safetensors"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--limit", type=int, help="train on this many images only, for a quick look")
    parser.add_argument("--trial", action="store_true", help="read no test image: for runs that inform a choice")
    arguments = parser.parse_args()
    seen = training_templates() & {*EMBEDDED_TEMPLATES, *VALIDATION_TEMPLATES}
    if seen:
        raise SystemExit(f"held-out templates occur in training: {sorted(seen)}; reword them")

    make_deterministic(arguments.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU ({platform.machine()})"
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32; bfloat16 would cost more casts than it saves here
    data, validation = split(read(arguments.data, "train", device), arguments.limit, arguments.seed)
    encoder = EmbeddedEncoder().to(device)
    print(
        f"{sum(p.numel() for p in encoder.parameters()):,} parameters, {len(data):,} images, {hardware}",
        flush=True,
    )
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels add up gradients in any order
        train(encoder, data, validation, arguments.epochs, arguments.seed)

    for parameter in encoder.parameters():
        parameter.data = parameter.data.half().float()  # measure what users will have
    validated, _ = zero_shot(encoder, validation, VALIDATION_TEMPLATES)
    print(f"validation accuracy {validated:.4f}")
    tested = None
    if not arguments.trial:
        tested, _ = zero_shot(encoder, read(arguments.data, "t10k", device), EMBEDDED_TEMPLATES)
        print(f"clean test accuracy {tested:.4f}")
    encoder.write(
        arguments.out,
        clean_test_accuracy=tested,
        epochs=arguments.epochs,
        hardware=hardware,
        licence=LICENCE,
        seed=arguments.seed,
        torch=torch.__version__,
        training_images=len(data),
        validation_accuracy=validated,
    )
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes, fingerprint {encoder.fingerprint}")


if __name__ == "__main__":
    main()
