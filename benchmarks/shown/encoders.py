"""docs/encoders.md."""

import json

from shown.results import ROOT, Table, found, one, rows, written

SETS = {
    "Flowers": "oxford_flowers",
    "DTD": "dtd",
    "Pets": "oxford_pets",
    "Cars": "stanford_cars",
    "UCF101": "ucf101",
    "Caltech": "caltech101",
    "Food": "food101",
    "SUN": "sun397",
    "Aircraft": "fgvc_aircraft",
    "EuroSAT": "eurosat",
}


def fast_decode() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        cosines = (row["least_cosine"], row["mean_cosine_between_pictures"])
        size = f"{row['width']}×{row['height']}"
        return [row["model"], size, f"{row['pixels_made_faster_by']}×", *cosines]

    head = ["", "photograph", "speed-up of decoding and resizing", "cosine with the exact features, minimum of 8"]
    ordered = sorted(rows("encode-fast-decode"), key=lambda row: row["model"] == "embedded")
    return [[*head, "mean cosine between different pictures"], *map(line, ordered)]


def embedded_words() -> Table:
    kinds = {"read rightly": "read rightly", "misread": "misread", "other things": "other"}
    measures = {
        "best cosine, threshold for the fewest errors": "cosine",
        "best cosine, threshold between clothing and others": "clothing",
        "nouns of the training (used)": "nouns",
    }

    def cell(row: dict[str, str]) -> str:
        return f"{row['warned']} of {row['words']}"

    lines = [
        [f"{part}, `{model}`", title, *(cell(one("embedded-words", kind=kind, **where)) for kind in kinds.values())]
        for part, model in dict.fromkeys((row["part"], row["model"]) for row in rows("embedded-words"))
        for title, measure in measures.items()
        if found("embedded-words", **(where := {"part": part, "model": model, "measure": measure}))
    ]
    return [["words", "warns by", *kinds], *lines]


def speed() -> Table:
    ways = {
        "one by one": "one by one",
        "ours": "ours",
        "ours, `--fast-decode`": "ours, fast decoding",
        "encoder alone, pixels ready": "encoder alone",
    }
    columns = {"images per second": ("images_per_second", ",.1f"), "of the encoder alone": ("of_encoder_alone", ".2f")}
    lines = [
        [model, what, *(written(one("encode-cpu", model=model, way=way)[column], form) for way in ways.values())]
        for model in dict.fromkeys(row["model"] for row in rows("encode-cpu"))
        for what, (column, form) in columns.items()
    ]
    return [["", "", *ways], *lines]


def acceptance() -> Table:
    text = (ROOT / "src" / "pta" / "assets" / "acceptance.json").read_text(encoding="utf-8")

    def line(row: dict[str, dict[str, float]]) -> list[str]:
        accuracies = [row["accuracies"][name] for name in SETS.values()]
        title = f"{row['architecture']}, `{row['templates']}`" + (
            ", with descriptions" if "descriptions" in row else ""
        )
        return [title, *(f"{value:.2f}" for value in (*accuracies, sum(accuracies) / len(accuracies)))]

    rows_of_images = [row for row in json.loads(text)["rows"] if set(SETS.values()) <= set(row["accuracies"])]
    return [["", *SETS, "mean"], *map(line, rows_of_images)]
