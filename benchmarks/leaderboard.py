"""The leaderboard: all methods that features alone suffice for, on seven streams of feature files, at their defaults.

    python benchmarks/leaderboard.py FILE …         writes benchmarks/results/leaderboard.csv

A stream has at most MOST samples, which SEED draws; `junk first` begins with half as many of the next file. Finished
rows stay, so a second call resumes. Rows that other code has made are made anew, unless --keep-old is given. DOTA is
left out with more than MANY classes: its state has d² numbers per class, and a stream takes minutes.

`pta eval --leaderboard` writes the same rows for a method of one's own.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from result_file import RESULTS
from unbalanced import MANY, SLOW

from pta import list_adapters
from pta.cli.leaderboard import MOST
from pta.core.samples import Samples
from pta.data.features import FeatureFile, load_features
from pta.measure.leaderboard import fill
from pta.methods import needs_model, needs_of_samples

SEED = 1
ONE_TEXT = {"etta": {"prompts": "one"}}
"""Parameters without which a method needs several texts per class, which feature files do not have."""


def methods_of(data: FeatureFile) -> dict[str, dict[str, str]]:
    """The methods that features alone suffice for, with parameters, without those that are too slow for the classes."""
    methods = {method: ONE_TEXT.get(method, {}) for method in list_adapters()}
    return {
        method: given
        for method, given in methods.items()
        if not needs_model(method, given)
        and needs_of_samples(method, given) <= {"features"}
        and not (method in SLOW and data.classifier.classes > MANY)
    }


def main() -> None:
    """Measure what the table does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--method", action="append", help="only this one; may be repeated")
    parser.add_argument("--keep-old", action="store_true", help="keep rows that other code has made")
    parser.add_argument("--out", type=Path, default=RESULTS / "leaderboard.csv")
    given = parser.parse_args()
    files = [load_features(path) for path in given.files]
    alone = [replace(data, samples=Samples.of(data.samples.features)) for data in files]
    chosen = given.method or list_adapters()
    work = [(data, {name: own for name, own in methods_of(data).items() if name in chosen}) for data in alone]
    fill(given.out, work, [SEED], MOST, keep_old=given.keep_old, on_row=lambda what: print(what, file=sys.stderr))


if __name__ == "__main__":
    main()
