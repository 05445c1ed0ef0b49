"""BCA, one sample at a time, as its two ports run it."""

import numpy as np


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def bca_loop(
    anchors,
    features,
    *,
    scale=100.0,
    centre_threshold=0.05,
    centre_count=20000,
    prior_threshold=0.65,
    prior_count=1,
    update="posterior",
    order="predict-first",
    with_state=False,
):
    """Logits N×C, the logarithm of the posteriors; the centres and the table too, if asked."""
    centres = anchors.copy()
    table = np.eye(len(anchors), dtype=anchors.dtype)
    n1 = [centre_count] * len(anchors)
    n2 = [prior_count] * len(anchors)

    def beliefs(f):
        likelihood = softmax(scale * (centres @ f))
        return likelihood, sum(likelihood[m] * table[m] for m in range(len(table)))

    answers = []
    for f in features:
        likelihood, posterior = beliefs(f)
        chosen = int(np.argmax(posterior if update == "posterior" else likelihood))
        if posterior.max() > centre_threshold:
            mean = (n1[chosen] * centres[chosen] + f) / (n1[chosen] + 1)
            centres[chosen] = mean / np.linalg.norm(mean)
            n1[chosen] += 1
        if posterior.max() > prior_threshold:
            table[chosen] = (n2[chosen] * table[chosen] + posterior) / (n2[chosen] + 1)
            n2[chosen] += 1
        answers.append(posterior if order == "predict-first" else beliefs(f)[1])
    with np.errstate(divide="ignore"):
        logits = np.log(np.stack(answers))
    return (logits, centres, table) if with_state else logits
