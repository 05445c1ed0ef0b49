"""What is called: a line for each public function and reader, with valid input, which a call then mutates."""

import io
import shutil
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from fuzzing import sequences, sessions, valid
from fuzzing.calls import Scene, Target, Violation, make_call
from fuzzing.declare import TARGETS, Call, calls, command, file
from pta import create_adapter

_PICTURE = Image.fromarray(valid.PICTURE)
_FASHION = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
_NAMES = list(valid.NAMES)
_PATTERN = "a photo of a {}."

__all__ = ["TARGETS", "numbered_call", "sequences", "sessions", "target_of"]

# what everything stands on
for _anchors in (valid.ANCHORS, lambda scene: scene.odd(torch.from_numpy(valid.ANCHORS))):
    _prompts = [["a"], ["b"], ["c"], ["d"], ["e"]]
    _then = {"prompts": _prompts, "then": sequences.check_classifier, "weight": 20}
    calls("pta:ZeroShotClassifier", _anchors, valid.NAMES, 20.0, 0.5, **_then)
calls(
    *("pta:ZeroShotClassifier.to", lambda scene: valid.classifier()),
    **{"device": torch.device("cpu"), "dtype": torch.float64},
)
# methods
calls("pta:list_adapters")
calls("pta.methods:adapter_class", "pta")
calls("pta.methods:needs_model", "tca", {"rate": 0.5})
calls("pta.methods:needs_of_samples", "zero", {})
calls("pta.methods.presets:require_preset", "paper", "dtd")
calls("pta.methods.presets:load_preset", "pta", "paper", "dtd")
calls("pta.methods.presets:depends_on_dataset", "pta")
calls("pta.methods.presets:preset_names")
calls("pta.methods:Snapshot", "pta", {}, lambda scene: valid.classifier(), {})
calls(
    *("pta:PointCache.preview", lambda scene: create_adapter("point-cache", valid.classifier(), prefill=True)),
    lambda scene: valid.samples()[:6],
)
# what was learned
_LEARNED, _OURS = (lambda scene: valid.learned("pta").clone()), (lambda scene: valid.classifier())
calls("pta.methods.class_table:class_table", _LEARNED)
calls("pta.methods.class_table:class_prototypes", _LEARNED)
calls("pta.methods.growing:add_class", _LEARNED, "a newt", valid.ANCHORS[0], weight=6)
calls("pta.methods.growing:anchor_from", _OURS, valid.NAMES[0], _OURS)
calls(
    "pta.methods.merging:merge", lambda scene: scene.around([valid.learned("pta").clone(), valid.segment()]), weight=4
)
calls("pta.methods.merging:load_part", file("segment.safetensors"), weight=4)
# from pictures and texts to features
calls("pta.models:load_encoder", "embedded", device="cpu", dtype="float32")
calls("pta.models:find_device", "cpu")
calls("pta.door.images:decode_image", valid.picture(), "the image", at_least=None, weight=6)
calls("pta.door.images:decode_image", valid.picture("JPEG"), "the image", at_least=4, weight=6)
calls("pta.door.images:as_picture", valid.PICTURE)
calls("pta.door.images:Preprocessing", 8, "shortest", "bicubic", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
calls(
    "operator:call",
    Call("pta.door.images:DevicePreprocessing", Call("pta.door.images:Preprocessing", 8), 9, 7),
    torch.zeros(1, 3, 9, 7, dtype=torch.uint8),
)
calls("pta.door.images.frames:split_frames", lambda scene: io.BytesIO(scene.content("frames.bin")), weight=10)
calls("pta.data.views:make_views", _PICTURE, lambda scene: valid.encoder().preprocess, count=3, mode="augmix", seed=1)
calls("pta.data.views:confident_mean", lambda scene: valid.samples(), lambda scene: valid.classifier(), keep=0.3)
calls("pta.data.shifts:apply_shift", np.zeros((2, 6, 6), np.uint8), "blur", 2, 1, weight=6)
for _cloud in valid.CLOUDS:
    calls(
        "pta.door.points.reading:read_cloud",
        lambda scene, name=_cloud: scene.content(name),
        points=16,
        seed=1,
        weight=5,
    )
calls("pta.data.shifts.points:corrupt_points", valid.CLOUD, "add_local", 2, seed=1, number=3, weight=6)
# class names to anchors
calls(
    *("pta.data.prompts:build_classifier", lambda scene: valid.encoder(), _NAMES, [_PATTERN]),
    descriptions=valid.DESCRIPTIONS,
    cache=lambda scene: scene.around(scene.folder / "anchors"),
    weight=6,
)
calls("pta.data.prompts:class_texts", _NAMES, [_PATTERN], valid.DESCRIPTIONS, weight=4)
calls("pta.data.prompts:load_templates", "clip", "dtd")
calls("pta.data.prompts:load_templates", file("templates.txt"), weight=5)
calls("pta.data.prompts:load_templates", file("templates.json"), weight=5)
calls("pta.data.prompts:load_descriptions", file("descriptions.json"), weight=8)
calls("pta.data.prompts:default_cache")
# data
for _kind in ("npz", "safetensors"):
    calls("pta.data.features:load_features", file(f"features.{_kind}"), then=lambda one: one.fingerprint, weight=40)
calls("pta.data.features:load_features", lambda scene: scene.around(scene.file("features.npz")))
calls("pta.data.features:read_about", file("features.safetensors", Path), weight=6)
_OPEN, _READ = "pta.data:open_samples", sequences.read_all
calls(_OPEN, file("classes"), class_names=None, then=_READ, weight=8)
calls(_OPEN, file("classes", Path), class_names=valid.NAMES, then=_READ, weight=4)
_FOUND = {"then": lambda found: (found.count, found.fingerprint), "weight": 4}
calls("pta.data.generated:find_generated", Call(_OPEN, file("classes")), file("generated"), 2, **_FOUND)
calls(_OPEN, file("shard.tar"), class_names=valid.NAMES, then=_READ, weight=12)
calls(_OPEN, file("clouds.h5"), class_names=valid.NAMES, then=_READ, weight=8)
calls(_OPEN, file("listed", lambda path: path / "list.csv"), then=_READ, weight=12)
for _source in valid.SOURCES:
    calls(_OPEN, _source, root=file("datasets", Path), class_names=None, then=_READ, weight=4)
calls("pta.data:SampleFile", file("picture.png", Path), "key", then=lambda sample: sample.read())
calls("pta.data:SampleFile", lambda scene: scene.around(scene.folder / "picture.png"), "key")
calls("pta.data.catalogue:find_entry", "imagenet_c/fog/5")
calls("pta.data.catalogue:is_catalogued", "dtd")
calls("pta.data.catalogue:catalogue", then=lambda sets: [entry.record() for entry in sets.values()])
calls("pta.data.check:check", "dtd", file("datasets", Path), weight=4)
calls("pta.data.fashion:load_fashion_test")
calls("pta.data.furniture:load_furniture_test")
calls("pta.data.shapes.draw:draw_cloud", 3, "test", seed=1)
calls("pta.door.files:load_tensors", file("segment.safetensors", Path), lambda scene: "segment")
calls("pta.door.files:read_json", file("records.json", Path), "record")
# orders
calls("pta.data.orders:iid", 10, 3)
calls("pta.data.orders:dirichlet", valid.LABELS, 0.1, 1, batch=4, slots=None, weight=4)
calls("pta.data.orders:slot_count", 100, 10, 8)
calls("pta.data.orders:separate", valid.LABELS, 1)
calls("pta.data.orders:drifting", valid.LABELS, 1)
calls("pta.data.orders:poisoned", np.arange(4), np.array([0, 1, 0, 1]), np.full((4, 2), 0.5), prefix=2, confidence=0.4)
calls("pta.data.orders:batches", np.arange(10), 3, drop_last=True)
calls("pta.data.orders:kept", 10, 3, drop_last=True)
# evaluation, and encoders, data and methods together
calls(
    *("pta.evaluation.evaluate:evaluate", lambda scene: valid.data(), {"clip": {}, "pta": {"h": 5.0}}, [1, 2]),
    stream=Call("pta.evaluation.stream:Stream", "dirichlet", 0.1, drop_last=False, lookahead=False),
    **{"batch": 8, "weight": 8, "then": sequences.summarise},
)
calls(
    "pta.run.extract:extract",
    *(Call(_OPEN, file("classes")), lambda scene: valid.encoder(), lambda scene: valid.live().classifier),
    lambda scene: scene.around(scene.folder / "out.safetensors"),
    Call("pta.run.reading:Reading", 2, 2, views=Call("pta.run.reading:Views", 2, "crops")),
    **{"about": {"model": "x"}, "shard": 2, "replace": False, "on_error": "skip", "weight": 6},
)
calls(
    "pta.reproduction.plan:place",
    Call("pta.reproduction.declaration:load_experiment", file("mine.toml")),
    Call(
        "pta.reproduction.profile:profile_with", lambda scene: [valid.data()], offline=lambda scene: True, most_seeds=2
    ),
    **{"then": lambda plan: list(plan.all_jobs), "weight": 16},
)
calls("pta.reproduction.declaration:load_experiments", lambda scene: [str(scene.file("mine.toml"))], weight=2)
calls("pta.evaluation.bits:read_bits", "kA==", 4, weight=4)
calls("pta.reproduction.declaration:parse_experiment", "mine", valid.EXPERIMENT, weight=6)
_OPTIONS = {"templates": "clip", "descriptions": None, "method": "pta", "device": "cpu", "dtype": "float32"}
_OPTIONS |= {"cache": None, "views": 4, "expected": 10, "reject_below": 0.5}
calls("pta:Classifier", lambda scene: valid.encoder(), list(valid.CLOTHES), **_OPTIONS, weight=16)
calls("pta.run.extract:require_feature_file", lambda scene: scene.around(scene.folder / "x.safetensors"))
calls("pta.data:open_samples", "fashion/blur/2/5", root=None, class_names=_FASHION, weight=1)
calls("pta.data.fashion:open_fashion", "fashion/blur/2/5", _FASHION, weight=1)
calls("pta.data.point_shapes:open_point_shapes", "point_shapes/furniture/jitter/2/5", None, weight=1)
calls("pta.data.point_shapes:load_shapes", "furniture", weight=1)
calls("pta.data.open:open_places", lambda scene: scene.around([str(scene.file("classes"))]), frames=False)
calls("pta.run.verify:find_reference", "ViT-B/16", "clip", then=lambda found: found.choose(["dtd"]))
calls("pta.demo:run_demo", "blur", 2, 1, limit=5, weight=1)
calls("pta.demo:run_cloud_demo", "furniture", "jitter", 2, 1, limit=5, weight=1)
# the command: its weight, its arguments, and what it reads from standard input
for _line in """\
6 eval --features {features.npz} --method pta --method zero --seed 1 --set pta.h=5 --stream dirichlet --gamma 0.1
  --batch 8 --json out.json --predictions answers
2 eval --features {features.safetensors} --method all --preset paper/dtd --json -
6 compare {records.json} --a clip --b pta --resamples 1000 --level 0.9
3 sweep --features {features.npz} --set pta.h=5,20 --seed 1 --results {store} --csv out.csv --json out.json
1 reproduce {mine.toml} --features {features.npz} --offline --out results --seeds 1
1 methods pta --json -
6 predict {classes} --classes coat,bag --model embedded --out rows.jsonl --top 2 --on-error skip --workers 2
  --method pta --set pta.h=5 --state s.safetensors
4 predict {picture.png} --classes coat,bag,sneaker --model embedded --out {rows.jsonl} --append
  --state {live.safetensors} --workers 1
4 predict - --frames --classes coat,bag --model embedded --out - --csv --device cpu --on-error skip --workers 1
  --reject-below 0.5
  < frames.bin
3 predict - --classes {names.txt} --model embedded --descriptions {descriptions.json} --on-error skip --workers 1
  < paths.txt
5 extract {classes} --out f.safetensors --model embedded --views 2 --view-mode crops --seed 1 --shard 2
  --on-error skip --templates {templates.txt} --json - --workers 2
2 extract {classes} --out f.safetensors --model embedded --views-from {generated} --generated 2 --on-error skip
3 extract {shard.tar} --out f.safetensors --model embedded --classes a,b,c --pixels
2 state show {state-wpta.safetensors} --json -
3 state merge {segment.safetensors} {segment.safetensors} --out merged.safetensors
3 state add-class {live.safetensors} boot --model embedded
2 state export {state-pta.safetensors} --out prototypes.npz
1 corrupt-points {clouds.h5} out --seed 1 --points 520 --json -
3 datasets check dtd --data {datasets} --json -
1 datasets --json list.json
""".replace("\n  ", " ").splitlines():
    command(_line)
command("1 verify embedded --data {datasets} --dataset dtd --features f", always_refused=True)
command("1 demo --shift nothing --severity 3 --seed 1 --report r.html", always_refused=True)


def target_of(seed: int, number: int) -> tuple[Target, Random]:
    """What the call of this number is of, and the random numbers for its input."""
    random = Random(f"{seed}/{number}")
    return random.choices(TARGETS, [one.weight for one in TARGETS])[0], random


def numbered_call(seed: int, number: int, scratch: Path) -> Violation | None:
    """Make the call of this number; what it violates, if anything. Valid files are kept in the scratch folder."""
    target, random = target_of(seed, number)
    folder, files = scratch / f"call-{number}", scratch / "valid"
    folder.mkdir()
    files.mkdir(exist_ok=True)
    try:
        return make_call(target, Scene(random, folder, files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
