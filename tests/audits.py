"""Rows to audit, with the pictures that they name, and what a person who knows the truth says about them."""

import csv
import json

import numpy as np
from photos import FASHION, write_photos

NAMES = FASHION.class_names


def write_rows(folder, count=60, *, right=0.8, changed=0.8, suffix=".jsonl", seed=1):
    """Photos, `rows` and `truth.csv`; of the changed answers, this share is right where zero-shot is wrong."""
    rng = np.random.default_rng(seed)
    photos = write_photos(folder / "photos", count, size=(48, 40))
    rows = []
    for path, true in photos:
        other = str(rng.choice([name for name in NAMES if name != true]))
        adapted = true if rng.random() < right else other
        zero_shot = adapted if rng.random() > changed else other if adapted == true else true
        rows.append({"path": str(path.relative_to(folder)), "label": adapted, "zero_shot_label": zero_shot})
    write_csv(folder / "truth.csv", [{"path": row["path"], "label": row["path"].split("/")[1]} for row in rows])
    if suffix == ".jsonl":
        (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        write_csv(folder / "rows.csv", rows)
    return folder / f"rows{suffix}"


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def truth_of(row):
    """The class of a row's picture."""
    return row.key.split("/")[1]


def said_about(draws, draw):
    """What a person who knows the truth says about a draw."""
    answers, true = draws.answers(draw), truth_of(draws.rows[draw])
    return ("first", "second")[answers.index(true)] if true in answers else "neither"
