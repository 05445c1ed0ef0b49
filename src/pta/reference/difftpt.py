"""DiffTPT as a loop: Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning (ICCV 2023).

Slow on purpose: the tests compare `pta.methods.difftpt` with it.
"""

from functools import partial

import numpy as np

from pta.reference.numerics import Array, lowest_entropy, unit
from pta.reference.tpt import Read, tune


def difftpt_loop(
    read: Read,
    context: Array,
    views: Array,
    generated: Array | None,
    *,
    scale: float = 100.0,
    keep: float = 0.3,
    keep_similar: float = 0.8,
    steps: int = 4,
    lr: float = 5e-3,
    weight_decay: float = 0.01,
    ctpt: float = 0.0,
) -> Array:
    """Logits N×C from the views N×V×d, the plain image first, and the generated pictures N×G×d."""
    outputs = []
    for augmented_views, pictures in zip(views, views[:, :0] if generated is None else generated, strict=True):
        # 1. The rows.
        rows = np.concatenate([augmented_views, pictures])
        # 2. Those whose logits are most similar to the plain image's.
        logits = scale * rows @ read(context).T
        cosines = [unit(z) @ unit(logits[0]) for z in logits[1:]]
        similar = np.argsort(-np.array(cosines), kind="stable")[: int(len(cosines) * keep_similar)]
        rows = rows[[0, *(1 + similar)]]
        # 3. Of these, the most confident.
        chosen = rows[lowest_entropy(scale * rows @ read(context).T, max(1, int(len(rows) * keep)))]
        # 4. Tune the prompt, score the plain image.
        tuned = tune(read, context, chosen, scale=scale, steps=steps, lr=lr, weight_decay=weight_decay, ctpt=ctpt)
        outputs.append(scale * read(tuned) @ rows[0])
    return np.array(outputs)


difftpt_augmented_loop = partial(difftpt_loop, generated=None)
"""The same with augmented views alone."""
