"""`pta state`: show a saved state, merge states, add a class, export it frozen."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from rich.table import Column, Table
from typer import Argument, Option

from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.messages import say
from pta.cli.options import ClassTexts, NamedModel
from pta.cli.output import CommandGroup, plain, print_lines, require_place, write_json
from pta.data.features import load_features
from pta.door.claims import sole_writer
from pta.door.files import write_atomically
from pta.errors import InvalidParameter, UnreadableFile
from pta.methods import Adapter, load_adapter
from pta.methods.classes import ClassRow, add_class, anchor_from, class_table, require_new_class
from pta.methods.frozen import require_learned, warn_if_frozen_early
from pta.methods.merging import load_part, merge
from pta.methods.state_file import load_state, read_stream
from pta.models.onnx.graph import require_onnx
from pta.run.export.arrays import ENDINGS, linear_file, prototypes_file
from pta.run.export.frozen_head import require_exportable
from pta.run.export.onnx_files import frame_file, frame_size, head_file

state = CommandGroup("state")
File = Annotated[Path, "A file written by pta predict --state or Adapter.save.", Argument(metavar="STATE")]


@state.command()
def show(
    file: File,
    model: Annotated[str | None, "The model, for methods that need one of its towers."] = None,
    json: Annotated[Path | None, "Write the table as JSON; - for stdout."] = None,
) -> None:
    """Show the method, its parameters, and how far each class's prototype is from its text."""
    require_place(json)
    read_stream(file)  # refuses what is not a state, before a model is loaded
    adapter = load_adapter(file, model=None if model is None else NamedModel(model).encoder)
    rows, classifier = class_table(adapter), adapter.classifier
    record = {
        "method": adapter.name,
        "parameters": dict(adapter.parameters),
        "position": adapter.position,
        "bytes": adapter.state_bytes,
        **{name: getattr(classifier, name) for name in ("dim", "scale", "bias")},
        "classes": [row._asdict() for row in rows],
    }
    if write_json(json, record):
        learned = sum(row.learned for row in rows)
        parameters = ", ".join(f"{name}={value}" for name, value in adapter.parameters.items())
        print_lines(
            f"{adapter.name}: {adapter.position:,} samples, {learned:,} of {len(rows):,} classes updated",
            f"anchors of {classifier.dim} dimensions, scale {classifier.scale:g}, bias {classifier.bias:g}; "
            f"{parameters}",
        )
        print_table(state_table(adapter, rows))


@state.command("merge")
def merge_files(
    files: Annotated[list[Path], "States or segments, in the order of the stream.", Argument(metavar="A B…")],
    out: Annotated[Path, "The file to write."],
    replace: options.Replace = False,
) -> None:
    """Merge what was learned separately: segments of pta, a state and later segments, or states of wpta."""
    if len(files) < 2:
        raise InvalidParameter("merge needs two or more files")
    with sole_writer(out):
        require_place(out, replace=replace)
        merged = merge(list(map(load_part, files)))
        merged.part.save(out)
    print_lines(f"{out}: {merged.note}")


@state.command("add-class")
def add_class_to_file(
    file: File,
    name: Annotated[str, "The name of the new class.", Argument()],
    features: Annotated[Path | None, "Feature file that has the text feature of the class."] = None,
    model: Annotated[
        str | None,
        "The model of the state, to encode the name.",
        Option(show_default=f"{options.MODEL_VARIABLE}, unless --features is given"),
    ] = None,
    templates: options.Templates = "clip",
    descriptions: options.Descriptions = None,
    out: Annotated[Path | None, "The file to write.", Option(show_default="STATE")] = None,
    replace: options.Replace = False,
) -> None:
    """Add a class, which starts at its text feature. The other classes keep what they have learned."""
    model = model or (None if features else os.environ.get(options.MODEL_VARIABLE))
    if (features is None) == (model is None):
        raise InvalidParameter("give --features FILE or --model MODEL, the source of the class's text feature")
    named = None if model is None else NamedModel(model)
    target = out or file
    with sole_writer(target):
        if os.path.realpath(target) != os.path.realpath(file):
            require_place(target, replace=replace)
        names = load_state(file, None, None).classifier.class_names
        require_new_class(name, names)
        if named is None:
            assert features is not None
            source, encoder = load_features(features).classifier, None
        else:
            texts = ClassTexts.read([*names, name], templates, descriptions, named.modality.prompts)
            encoder = named.encoder
            source = texts.classifier(encoder)
        before = load_adapter(file, model=encoder)
        after = add_class(before, name, anchor_from(source, name, before.classifier))
        after.save(target, stream=read_stream(file))
    count = after.classifier.classes
    say(f"{target} has {count:,} classes; list {name} last in --classes, and keep the order of the other {count - 1:,}")


@state.command()
def export(
    file: File,
    out: Annotated[Path, "The file to write: .npz or .safetensors, for onnx .onnx."],
    to: Annotated[
        Literal["prototypes", "linear", "onnx-head", "onnx"],
        "prototypes; the frozen classifier as one matrix (linear), as a graph from features (onnx-head), or "
        "as a graph from the bytes of a frame (onnx).",
    ] = "prototypes",
    model: Annotated[
        str | None, "The model of the state, for onnx.", Option(show_default=options.MODEL_VARIABLE)
    ] = None,
    frame: Annotated[str | None, "The size of the frames, for onnx: 640x480.", Option(metavar="WIDTHxHEIGHT")] = None,
    replace: options.Replace = False,
) -> None:
    """Export a frozen state: its prototypes, or a classifier that runs without torch, which is run and compared."""
    endings = (".onnx",) if to in ("onnx-head", "onnx") else ENDINGS
    if out.suffix not in endings:
        raise UnreadableFile(f"--out {out}: with --to {to} the file must end in {' or '.join(endings)}")
    if to == "onnx":
        model = model or os.environ.get(options.MODEL_VARIABLE)
        if model is None or frame is None:
            raise InvalidParameter("--to onnx needs --model MODEL, whose tower it holds, and --frame, e.g. 640x480")
    elif model is not None or frame is not None:
        raise InvalidParameter(f"--model and --frame belong to --to onnx, not to --to {to}")
    if endings == (".onnx",):
        require_onnx()
    size = None if frame is None else frame_size(frame)
    named = None if model is None else NamedModel(model)
    with sole_writer(out):
        require_place(out, replace=replace)
        adapter = load_adapter(file)
        require_learned(adapter)
        warn_if_frozen_early(adapter)
        if to == "prototypes":
            content, said = prototypes_file(adapter, out.suffix), "prototypes and text features"
        elif to == "linear":
            content, said = linear_file(adapter, out.suffix), "logits = scale·matrix·feature + bias"
        elif to == "onnx-head":
            content, said = head_file(adapter), f"takes features N×{adapter.classifier.dim}, float32"
        else:
            assert named is not None
            assert size is not None
            require_exportable(adapter)
            made = frame_file(adapter, named.encoder, *size)
            shape = "×".join(map(str, made.takes))
            what = "frames" if made.resizes else "resized pictures, because resizing would cost more than the tower,"
            content, said = made.content, f"takes {what} of {shape} bytes"
        write_atomically(out, content)
    print_lines(f"{out}: {said}; {len(content):,} bytes")


def state_table(adapter: Adapter, rows: Sequence[ClassRow]) -> Table:
    """A table with the columns that the method has numbers for."""
    measured = {"samples": adapter.counts_in, "cosine with text": adapter.prototypes_in}
    headings = right(*(name for name, is_known in measured.items() if is_known))
    table = Table(Column("class", overflow="fold"), "learned", *headings)
    for row in rows:
        cells = [plain(row.name), "yes" if row.learned else "no"]
        if adapter.counts_in:
            cells.append(f"{row.samples:,.1f}")
        if adapter.prototypes_in:
            cells.append("none" if row.cosine is None else f"{row.cosine:.3f}")
        table.add_row(*cells)
    return table
