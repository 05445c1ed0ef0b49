"""`pta verify`: compare a model's zero-shot accuracies with published ones."""

from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Argument, Exit, Option

from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.options import NamedModel
from pta.cli.output import plain, progress_of, require_folder_place, require_place, write_json
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter
from pta.models import find_device
from pta.run.reading import require_decoder
from pta.run.verify import NOTHING_MEASURED, Verdict, find_reference, matching_references, require_datasets
from pta.run.verify import verify as verify_model


def verify(
    model: Annotated[str, "As for --model: hf:…, openclip:…, file:… or ulip:….", Argument()],
    data: Annotated[Path, "Folder that holds the datasets; see pta datasets."],
    how: options.ReadingOptions,
    templates: Annotated[str, "Templates of the published values: vanilla, clip, coop or dpe."] = "clip",
    architecture: Annotated[
        str | None, "Compare with ViT-B/16, RN50 or ULIP (PointBERT).", Option(show_default="the model's")
    ] = None,
    descriptions: Annotated[Path | None, "For dpe: folder with sentences for each class, DATASET.json."] = None,
    dataset: Annotated[list[str] | None, "Only this dataset; may be repeated."] = None,
    tolerance: Annotated[float, "Largest difference in points that counts as equal.", Option(min=0)] = 0.5,
    features: Annotated[Path, "Folder for feature files."] = Path("features"),
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    runtime: options.Runtime = "torch",
    json: Annotated[Path | None, "Write the table as JSON; - for stdout."] = None,
) -> None:
    """Compare a model's zero-shot accuracies with published ones on the datasets you have. Exit code 1: they differ."""
    require_place(json)
    options.require_folder("--data", data)
    options.require_folder("--descriptions", descriptions)
    require_folder_place(features)
    reading = how.reading()
    named = NamedModel(model, device, dtype, runtime)
    require_decoder(how.decode, named.modality, find_device(device))
    known = matching_references(architecture, templates, descriptions is not None)
    require_datasets(known, dataset, data)
    encoder = named.encoder
    reference = find_reference(architecture or encoder.architecture, templates)
    chosen = reference.choose(dataset)
    make_folder(features)
    with progress_of("") as move:
        verdicts = list(
            verify_model(
                *(encoder, reference, data, features, chosen, reading),
                descriptions=descriptions,
                on_progress=lambda name, total, done: move(done, total, name),
            )
        )
    if write_json(json, [verdict.record() for verdict in verdicts]):
        title = plain(f"{model} as {reference.architecture}, templates {templates}")
        print_table(_table(verdicts, title, tolerance))
    differences = [abs(verdict.difference) for verdict in verdicts if verdict.difference is not None]
    if not differences:
        raise InvalidParameter(NOTHING_MEASURED.format(data))
    if max(differences) > tolerance:
        raise Exit(1)


def _table(verdicts: list[Verdict], title: str, tolerance: float) -> Table:
    table = Table("dataset", *right("samples", "published", "measured", "difference"), "", title=title)
    for verdict in verdicts:
        published = f"{verdict.published:.2f}"
        if verdict.measured is None or verdict.difference is None:
            table.add_row(verdict.dataset, "", published, "", "", plain(verdict.note))
            continue
        same = "equal" if abs(verdict.difference) <= tolerance else "differs"
        note = f"{same}; {verdict.note}" if verdict.note else same
        measured = (f"{verdict.measured:.2f}", f"{verdict.difference:+.2f}")
        table.add_row(verdict.dataset, f"{verdict.images:,}", published, *measured, plain(note))
    return table
