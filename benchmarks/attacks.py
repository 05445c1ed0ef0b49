"""Attacks on a stream that nobody watches: what they cost, which alarms they raise, and what guards take back.

    python benchmarks/attacks.py                  writes benchmarks/results/attacks.csv: FULL, one seed, every guard
    python benchmarks/attacks.py --recommended    writes attacks-recommended.csv: all files, SEEDS, none and RECOMMENDED

Honest samples are the file shuffled, again and again in another order until there are HONEST; they come from four
sources at random. The first START are the monitor's own reference. Then the attack begins, unless it says otherwise.
Junk is drawn with replacement from the other files, from each with the same chance. Two files may share a class: the
junk from ImageNet has cars and food in it. Where an attacker can choose, he knows the file and its labels, and takes
what costs most if the mean of his pictures were PTA's prototype of their class.

* `foreign 5 %`, `20 %`, `50 %` of the stream. `foreign first`: the first 500 samples are junk, later ones are honest.
  `foreign first, reference`: the same, with a reference of 500 samples of the file that was given.
* `poison`: the 20 samples of junk that are most confidently one class, 30 % of the stream, from one source; the class
  is chosen. `poison, spread`: the same from 64 sources.
* `flood`: one picture of the file or of junk that zero-shot is sure about (SURE), 30 % of the stream, from one source.
* `knows the guards`: junk and wrongly answered pictures that are confidently one class, as `poison` otherwise, but 5 %
  of the stream, from the four honest sources, and each at least as confident as half of the honest samples.
* `noise`: 30 %, as far from the mean picture as pictures are, in random directions.
* `sorted`: one class after the other; `sorted at once`: from the first sample on. `bursts`: 4 to 12 of a class. `round
  robin`: five look-alike classes in turn, then the next five.
* `absent class`: a class stays away for 5,000 samples, and is then a tenth of the last 1,500.
* `unlisted class`: a class is on no list, and a fifth of the stream.
* `gradual shift`: the packaged Fashion images under more and more noise. `sudden shift`: under one shift after another.

`accuracy` counts honest samples, in percent. `zero_shot` is zero-shot's on these. `unattacked` is the method without a
guard on these alone, shuffled where the attack is their order; `cost` is what the attack takes from that in points, and
`back` what the guard takes back of it. `worst` is the worst class with at least LEAST honest samples; `attacked` is the
class that is aimed at, `attacked_unattacked` and `attacked_zero_shot` the same without the attack, and of zero-shot.
`alarms` has kind:sample of all that were raised; `delays` has samples from the start of the attack to the first alarm
of a kind; `false` counts the alarms before. `held` is the share of all samples that was not learned, in percent. `time`
is that of the run divided by that of the method without a monitor. With the guard `none` the monitor watches, and
nothing reacts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from monitors import (
    BATCH,
    CAMERAS,
    DEVELOPMENT,
    FASHION,
    FILES,
    FOREIGN,
    HONEST,
    START,
    Chosen,
    File,
    Numbers,
    Random,
    Stream,
    by_class,
    drawn,
    guarded,
    in_order,
    mixed,
    opened,
    options,
    pooled,
    probabilities,
    shifted,
)
from numpy.typing import NDArray
from result_file import RESULTS, Row, write
from torch import Tensor
from torch.nn.functional import normalize

from pta import Samples, ZeroShotClassifier, create_adapter
from pta.measure.provenance import hardware
from pta.monitor import ScoreReference

FULL, SEEDS = DEVELOPMENT[:2], (1, 2, 3)
METHODS = ("clip", "pta", "wpta", "tda")
LEAST, POISON, SURE = 5, 20, 0.5

Groups = Callable[[File, Numbers, Random], Iterable[Numbers]]

ALONE = (
    *("foreign-input=hold", "foreign-input=zero-shot", "changed-more=hold", "changed-more=zero-shot"),
    *("concentrating=zero-shot", "sorted=zero-shot", "one-source=cap", "one-source=hold", "class-moved=hold"),
)
RECOMMENDED = Chosen(("one-source=cap",), prior="local")
GUARDS = {
    "none": Chosen(),
    **{one: Chosen((one,)) for one in ALONE},
    **{f"reject-holds {share}": Chosen(hold_below=share) for share in (0.1, 0.2, 0.3, 0.5)},
    "prior local": Chosen(prior="local"),
    "recommended": RECOMMENDED,
}


@cache
def junk_for(folder: Path, name: str) -> Tensor:
    """As many samples of each other file."""
    random, others = np.random.default_rng(0), [opened(folder, other).features for other in FILES if other != name]
    least = min(map(len, others))
    return torch.cat([one[random.permutation(len(one))[:least]] for one in others])


def harm(file: File, labels: Numbers, prototypes: Tensor) -> NDArray[np.float64]:
    """How much accuracy is lost if each prototype alone, N×d, takes the place of what PTA learns of that class."""
    p = torch.from_numpy(probabilities(file.classifier, file.features)).float()
    learned = normalize(torch.where(p >= 0.1, p, 0).T @ file.features + 1e-6 * file.classifier.anchors, dim=1)
    z, truth = file.classifier.logits(file.features), torch.from_numpy(file.labels)
    scores = z + file.classifier.scale * file.features @ learned.T
    (best, second), (first, _) = scores.topk(2).values.T, scores.topk(2).indices.T
    chosen = torch.from_numpy(labels)
    other = torch.where(first[:, None] == chosen, second[:, None], best[:, None])  # the best of the other classes
    is_other_right = (
        torch.where(first[:, None] == chosen, scores.topk(2).indices[:, 1:], first[:, None]) == truth[:, None]
    )
    own = z[:, chosen] + file.classifier.scale * file.features @ normalize(prototypes, dim=1).T
    right = torch.where(own > other, chosen == truth[:, None], is_other_right)
    return np.asarray((first == truth).double().mean() - right.double().mean(dim=0))


def closest(file: File, pool: Tensor, least: float = 0.0) -> tuple[Tensor, int]:
    """The pictures of a pool that are most confidently one class, at least so; the class is that with most harm."""
    p = probabilities(file.classifier, pool)
    p[p < max(least, SURE)] = 0
    classes = np.flatnonzero((p > 0).any(axis=0))
    pictures = [pool[[row for row in np.argsort(-p[:, label])[:POISON] if p[row, label] > 0]] for label in classes]
    worst = int(harm(file, classes, torch.stack([several.mean(dim=0) for several in pictures])).argmax())
    return pictures[worst], int(classes[worst])


def clean(file: File, junk: Tensor, random: Random) -> Stream:
    """Without an attack: all alarms are false."""
    return in_order(file, drawn(file, random), random)._replace(start=HONEST, is_order=False)


def foreign(file: File, junk: Tensor, random: Random, *, share: float) -> Stream:
    """Samples of other files among the honest ones."""
    return mixed(file, junk, share, random)


def foreign_first(file: File, junk: Tensor, random: Random, *, is_given: bool) -> Stream:
    """Junk where the own reference is taken."""
    honest, first = clean(file, junk, random), junk[random.integers(len(junk), size=START)]
    trusted = file.features[random.permutation(len(file.labels))[:START]]
    return honest._replace(
        features=torch.cat([first, honest.features]),
        labels=np.concatenate([np.full(START, FOREIGN), honest.labels]),
        sources=["stranger"] * START + honest.sources,
        start=0,
        reference=ScoreReference.of(file.classifier, trusted) if is_given else None,
    )


def poison(file: File, junk: Tensor, random: Random, *, sources: Iterable[str]) -> Stream:
    """The junk that is most confidently one class."""
    pictures, attacked = closest(file, junk)
    return mixed(file, pictures, 0.3, random, sources=sources, attacked=attacked)


def flood(file: File, junk: Tensor, random: Random) -> Stream:
    """One picture, again and again."""
    pool = torch.cat([file.features, junk])
    p = probabilities(file.classifier, pool)
    pool, p = pool[p.max(axis=1) >= SURE], p[p.max(axis=1) >= SURE]
    picture = int(harm(file, p.argmax(axis=1), pool).argmax())
    return mixed(file, pool[[picture]], 0.3, random, attacked=int(p[picture].argmax()))


def knows_the_guards(file: File, junk: Tensor, random: Random) -> Stream:
    """Rare, as confident as honest samples are, and from honest sources."""
    p = probabilities(file.classifier, file.features)
    wrong = file.features[p.argmax(axis=1) != file.labels]
    pictures, attacked = closest(file, torch.cat([wrong, junk]), float(np.median(p.max(axis=1))))
    return mixed(file, pictures, 0.05, random, sources=CAMERAS, attacked=attacked)


def noise(file: File, junk: Tensor, random: Random) -> Stream:
    """Random directions from the mean picture, as long as those of pictures."""
    mean = file.features.mean(dim=0)
    directions = normalize(torch.from_numpy(random.standard_normal((2000, len(mean)))).float(), dim=1)
    return mixed(file, normalize(mean + directions * (1 - mean.square().sum()).sqrt(), dim=1), 0.3, random)


def regrouped(file: File, junk: Tensor, random: Random, *, groups: Groups, start: int) -> Stream:
    """The samples from `start` on in groups."""
    order = drawn(file, random)
    grouped = np.concatenate([order[:start], *groups(file, order[start:], random)])
    return in_order(file, grouped, random)._replace(start=start)


def bursts(file: File, order: Numbers, random: Random) -> list[Numbers]:
    """Short runs of one class."""
    cut = [
        np.split(own, np.cumsum(random.integers(4, 13, size=len(own) // 4))) for own in by_class(file, order, random)
    ]
    runs = [run for several in cut for run in several]
    return [runs[number] for number in random.permutation(len(runs))]


def round_robin(file: File, order: Numbers, random: Random) -> Iterator[Numbers]:
    """A sample of each of five look-alike classes in turn until there are no more, then of the next five."""
    left, alike = set(range(file.classifier.classes)), file.classifier.anchors @ file.classifier.anchors.T
    while left:
        nearest = alike[random.choice(sorted(left))].argsort(descending=True).tolist()
        group = [label for label in nearest if label in left][:5]
        left -= set(group)
        members = [order[file.labels[order] == label] for label in group]
        turns = np.concatenate([np.arange(len(own)) for own in members])
        yield np.concatenate(members)[np.argsort(turns, kind="stable")]


def absent_class(file: File, junk: Tensor, random: Random) -> Stream:
    """The class that the samples of other classes harm most."""
    p, labels = probabilities(file.classifier, file.features), file.labels
    p[np.arange(len(labels)), labels] = 0
    present = np.unique(labels)
    learned = torch.from_numpy(np.where(p >= 0.1, p, 0).T[present]).float() @ file.features
    attacked = int(present[harm(file, present, learned + 1e-6 * file.classifier.anchors[present]).argmax()])
    own, others = np.flatnonzero(labels == attacked), np.flatnonzero(labels != attacked)
    last = random.permutation(np.concatenate([random.choice(own, 150), random.choice(others, 1350)]))
    order = np.concatenate([drawn(file, random, START), random.choice(others, 5000), last])
    return in_order(file, order, random, attacked)


def unlisted_class(file: File, junk: Tensor, random: Random) -> Stream:
    """The class that harms most the one that it is taken for."""
    p, names = probabilities(file.classifier, file.features), file.classifier.class_names
    p[np.arange(len(p)), file.labels] = 0
    present = np.unique(file.labels)
    taken_for = np.array([p[file.labels == label].sum(axis=0).argmax() for label in present])
    means = torch.stack([file.features[file.labels == label].mean(dim=0) for label in present])
    unlisted = int(present[harm(file, taken_for, means).argmax()])
    kept, is_listed = [label for label in range(len(names)) if label != unlisted], file.labels != unlisted
    anchors, labels = file.classifier.anchors[kept], file.labels[is_listed]
    classifier = ZeroShotClassifier(anchors, [names[label] for label in kept], scale=file.classifier.scale)
    listed = File(classifier, file.features[is_listed], labels - (labels > unlisted))
    theirs = file.features[~is_listed]
    attacked = int(probabilities(classifier, theirs).sum(axis=0).argmax())
    return mixed(listed, theirs, 0.2, random, sources=CAMERAS, attacked=attacked)


def shift(file: File, junk: Tensor, random: Random, *, stages: list[tuple[str, int]]) -> Stream:
    """The images as they are, then under one shift after another, for START samples each."""
    order = drawn(file, random, START * (1 + len(stages)))
    parts = [file, *(shifted(*stage) for stage in stages)]
    features = [part.features[own] for part, own in zip(parts, order.reshape(len(parts), START), strict=True)]
    return in_order(file, order, random)._replace(features=torch.cat(features))


Attack = Callable[[File, Tensor, Random], Stream]
ATTACKS: dict[str, Attack] = {
    "clean": clean,
    **{f"foreign {percent} %": partial(foreign, share=percent / 100) for percent in (5, 20, 50)},
    "foreign first": partial(foreign_first, is_given=False),
    "foreign first, reference": partial(foreign_first, is_given=True),
    "poison": partial(poison, sources=["stranger"]),
    "poison, spread": partial(poison, sources=[f"stranger {number}" for number in range(64)]),
    **{"flood": flood, "knows the guards": knows_the_guards, "noise": noise},
    "sorted": partial(regrouped, groups=by_class, start=START),
    "sorted at once": partial(regrouped, groups=by_class, start=0),
    "bursts": partial(regrouped, groups=bursts, start=START),
    "round robin": partial(regrouped, groups=round_robin, start=START),
    **{"absent class": absent_class, "unlisted class": unlisted_class},
}
IN_TURN = [(name, 3) for name in ("contrast", "gaussian_noise", "rotate", "blur", "pixelate")]
SHIFTS: dict[str, Attack] = {
    "clean": clean,
    "gradual shift": partial(shift, stages=[("gaussian_noise", severity) for severity in range(1, 6)]),
    "sudden shift": partial(shift, stages=IN_TURN),
}


class Job(NamedTuple):
    """What is run at once."""

    folder: Path
    file: str
    seed: int
    attack: str
    method: str
    guards: tuple[str, ...]


def plain(stream: Stream, method: str) -> tuple[Numbers, float]:
    """The answers of a method without a monitor, and the time that they took."""
    adapter, begun = create_adapter(method, stream.classifier), time.perf_counter()
    answers = torch.cat([adapter.step(Samples(one)).argmax(dim=1) for one in torch.split(stream.features, BATCH)])
    return answers.numpy(), time.perf_counter() - begun


def unattacked(stream: Stream, method: str, seed: int) -> NDArray[np.bool_]:
    """Which samples of the stream are answered rightly without the attack; junk is not."""
    honest = np.flatnonzero(stream.labels != FOREIGN)
    order = np.random.default_rng(seed).permutation(honest) if stream.is_order else honest
    right = np.zeros(len(stream.labels), np.bool_)
    right[order] = plain(stream._replace(features=stream.features[order]), method)[0] == stream.labels[order]
    return right


def scores(right: NDArray[np.bool_], stream: Stream) -> tuple[float, float, float]:
    """Accuracy on honest samples, of the worst class, and of the attacked one (nan if there is none), in percent."""
    honest = stream.labels != FOREIGN
    labels, own = stream.labels[honest], right[honest]
    counts, found = np.bincount(labels), np.bincount(labels, own)
    worst = (found[counts >= LEAST] / counts[counts >= LEAST]).min()
    attacked = np.nan if stream.attacked is None else own[labels == stream.attacked].mean()
    return round(100 * own.mean(), 2), round(100 * worst, 1), round(100 * attacked, 1)


def rows_of(job: Job) -> list[Row]:
    """The rows of one stream and method, one per guard."""
    file, is_fashion = opened(job.folder, job.file), job.file == FASHION
    junk, attacks = (file.features, SHIFTS) if is_fashion else (junk_for(job.folder, job.file), ATTACKS)
    stream = attacks[job.attack](file, junk, np.random.default_rng(job.seed))
    zero_shot = probabilities(stream.classifier, stream.features)
    alone = scores(zero_shot.argmax(axis=1) == stream.labels, stream)
    before = scores(unattacked(stream, job.method, job.seed), stream)  # also warms up
    answers, seconds = plain(stream, job.method)
    without = scores(answers == stream.labels, stream)
    rows, start = list[Row](), stream.start
    for name in job.guards:
        run = guarded(stream, job.method, GUARDS[name], zero_shot)
        accuracy, worst, attacked = scores(run.answers == stream.labels, stream)
        first = {alarm.kind: alarm.position - start for alarm in reversed(run.alarms) if alarm.position > start}
        rows.append(
            {
                "file": job.file,
                "role": "development" if job.file in DEVELOPMENT else "shown",
                **{"seed": job.seed, "attack": job.attack, "method": job.method, "guard": name},
                **{"samples": len(stream.labels), "accuracy": accuracy, "zero_shot": alone[0]},
                **{"unattacked": before[0], "cost": round(before[0] - without[0], 2)},
                **{"back": round(accuracy - without[0], 2), "worst": worst, "worst_unattacked": before[1]},
                **{"attacked": attacked, "attacked_unattacked": before[2], "attacked_zero_shot": alone[2]},
                "alarms": " ".join(f"{alarm.kind}:{alarm.position}" for alarm in run.alarms),
                "delays": " ".join(f"{kind}:{delay}" for kind, delay in sorted(first.items())),
                "false": sum(alarm.position <= start for alarm in run.alarms),
                **{"held": round(100 * run.held, 1), "time": round(run.seconds / seconds, 2)},
                "hardware": hardware(),
            }
        )
    return rows


def main() -> None:
    """Measure every stream, and write the table."""
    parser = options(__doc__, METHODS)
    parser.add_argument("--recommended", action="store_true", help="all files and seeds, two guards")
    parser.add_argument("--attack", action="append", choices=(*ATTACKS, *SHIFTS), help="only this one; may be repeated")
    parser.add_argument("--guard", action="append", choices=tuple(GUARDS), help="only this one; may be repeated")
    given = parser.parse_args()
    guards = tuple(given.guard or (("none", "recommended") if given.recommended else GUARDS))
    seeds = SEEDS[: given.seeds or (len(SEEDS) if given.recommended else 1)]
    files = given.file or [*(FILES if given.recommended else FULL), FASHION]
    jobs = [
        Job(given.features, file, seed, attack, method, guards[:1] if method == "clip" else guards)
        for file, seed, method in product(files, seeds, given.method or METHODS)
        for attack in (SHIFTS if file == FASHION else ATTACKS)
        if attack in (given.attack or [attack])
    ]
    out = given.out or RESULTS / ("attacks-recommended.csv" if given.recommended else "attacks.csv")
    write(out, (row for rows in pooled(rows_of, jobs, given.workers) for row in rows))


if __name__ == "__main__":
    main()
