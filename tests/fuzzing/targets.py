"""What is called: a line for each public function and reader, with valid input, which a call then mutates."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fuzzing import valid
from fuzzing.calls import Target
from fuzzing.kinds import File, Made, Own, calls, command
from fuzzing.sessions import adapter_session, live_session, program_session
from fuzzing.steps import (
    all_records,
    check_classifier,
    check_features,
    compare_records,
    create,
    decode_frames,
    evaluate_methods,
    extract_folder,
    load_model,
    load_segment,
    load_state,
    make_samples,
    place_experiment,
    predict_folder,
    read_all,
    read_one,
    register,
    sweep_grid,
    use_store,
    write_rows,
)
from pta import list_adapters

_PICTURE = Image.fromarray(valid.PICTURE)
_METHODS = tuple(list_adapters())
_OF_ADAPTERS = tuple(
    f"pta:Adapter.{name}"
    for name in ("step", "predict", "snapshot", "restore", "clone", "reset", "to", "save", "state")
)
_PICTURES = ("png", "jpeg", "gif", "webp", "bmp", "tiff", "ppm")
_FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")

TARGETS: tuple[Target, ...] = (
    # what everything stands on
    Target(
        "Samples.of",
        make_samples("pta:Samples.of"),
        30,
        ("pta:Samples.of", "pta:Samples.batches", "pta:Samples.tensors"),
    ),
    Target("Samples", make_samples("pta:Samples"), 20, ("pta:Samples",)),
    calls(
        "pta:ZeroShotClassifier",
        valid.ANCHORS,
        valid.NAMES,
        20.0,
        0.0,
        prompts=None,
        then=check_classifier,
        weight=20,
    ),
    calls(
        "pta:ZeroShotClassifier",
        Own(lambda scene: scene.odd(torch.from_numpy(valid.ANCHORS))),
        valid.NAMES,
        scale=20.0,
        bias=0.5,
        prompts=[["a"], ["b"], ["c"], ["d"], ["e"]],
        then=check_classifier,
        weight=20,
    ),
    Target(
        "ZeroShotClassifier.to",
        lambda scene: partial(
            valid.classifier().to, device=scene.around(torch.device("cpu")), dtype=scene.around(torch.float64)
        ),
        2,
        ("pta:ZeroShotClassifier.to",),
    ),
    # methods
    *(Target(f"adapter {name}", adapter_session(name), 18, (f"adapter {name}", *_OF_ADAPTERS)) for name in _METHODS),
    *(Target(f"create_adapter {name}", create(name), 3, ("pta:create_adapter",)) for name in _METHODS),
    *(Target(f"load_adapter {name}", load_state(name), 14, ("pta:load_adapter",)) for name in _METHODS),
    Target("Segment.load", load_segment, 30, ("pta:Segment", "pta:Segment.load", "pta:Segment.save", "pta:compose")),
    Target("register", register, 2, ("pta:register",)),
    calls("pta:list_adapters"),
    calls("pta.adapters:adapter_class", "pta"),
    calls("pta.adapters:needs_model", "tca", {"rate": 0.5}),
    calls("pta.adapters:needs_of_samples", "zero", {}),
    calls("pta.adapters.presets:require_preset", "paper", "dtd"),
    calls("pta.adapters.presets:load_preset", "pta", "paper", "dtd"),
    calls("pta.adapters.presets:depends_on_dataset", "pta"),
    calls("pta.adapters.presets:preset_names"),
    calls("pta.adapters:Snapshot", "pta", {}, Own(lambda scene: valid.classifier()), {}),
    # from pictures and texts to features
    calls("pta.encoders:load_encoder", "embedded", device="cpu", dtype="float32"),
    calls("pta.encoders:find_device", "cpu"),
    Target("load_encoder file:", load_model("file", "openai.pt", "weights.pt", "weights.safetensors"), 12),
    Target("load_encoder hf:", load_model("hf", "hf-clip", "hf-siglip"), 6),
    *(
        calls("fuzzing.steps:encode_picture", File(f"picture.{kind}", Path), then=check_features, weight=5)
        for kind in _PICTURES
    ),
    calls("fuzzing.steps:as_raw", _PICTURE, weight=6),
    calls("fuzzing.steps:encode", torch.zeros(2, 1, 28, 28), weight=6),
    calls("fuzzing.steps:encode_texts", ["a cat", "a dog"], then=check_features, weight=6),
    calls("pta.images:decode_image", valid.picture(), "the image", at_least=None, weight=6),
    calls("pta.images:decode_image", valid.picture("JPEG"), "the image", at_least=4, weight=6),
    calls("pta.images:as_picture", valid.PICTURE),
    calls("pta.images:Preprocessing", 8, "shortest", "bicubic", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
    calls("fuzzing.steps:preprocess", [_PICTURE, _PICTURE], covers=["pta.images:CLIP_PREPROCESSING"]),
    calls(
        "fuzzing.steps:resize_on_device",
        *(9, 7, torch.from_numpy(valid.PICTURE).permute(2, 0, 1)[None].contiguous()),
        covers=["pta.images:DevicePreprocessing"],
    ),
    Target("split_frames", decode_frames, 10, ("pta.images.frames:split_frames",)),
    calls(
        "pta.views:make_views", _PICTURE, Own(lambda scene: valid.encoder().preprocess), count=3, mode="augmix", seed=1
    ),
    calls(
        "pta.views:confident_mean", Own(lambda scene: valid.samples()), Own(lambda scene: valid.classifier()), keep=0.3
    ),
    calls("pta.corruptions:apply_shift", np.zeros((2, 6, 6), np.uint8), "blur", 2, 1, weight=6),
    # class names to anchors
    calls(
        "pta.prompts:build_classifier",
        Own(lambda scene: valid.encoder()),
        list(valid.NAMES),
        ["a photo of a {}."],
        descriptions=valid.DESCRIPTIONS,
        cache=Made(lambda scene: scene.folder / "anchors"),
        weight=6,
    ),
    calls("pta.prompts:class_texts", list(valid.NAMES), ["a photo of a {}."], valid.DESCRIPTIONS, weight=4),
    calls("pta.prompts:load_templates", "clip", "dtd"),
    calls("pta.prompts:load_templates", File("templates.txt"), weight=5),
    calls("pta.prompts:load_templates", File("templates.json"), weight=5),
    calls("pta.prompts:load_descriptions", File("descriptions.json"), weight=8),
    calls("pta.prompts:default_cache"),
    # data
    calls("pta.datasets.features:load_features", File("features.npz"), then=lambda file: file.fingerprint, weight=40),
    calls(
        "pta.datasets.features:load_features",
        File("features.safetensors"),
        then=lambda file: file.fingerprint,
        weight=40,
    ),
    calls("pta.datasets.features:load_features", Made(lambda scene: valid.file(scene.files, "features.npz"))),
    calls("pta.datasets.features:read_about", File("features.safetensors", Path), weight=6),
    calls("pta.datasets:open_samples", File("classes"), class_names=None, then=read_all, weight=8),
    calls("pta.datasets:open_samples", File("classes", Path), class_names=valid.NAMES, then=read_all, weight=4),
    calls("pta.datasets:open_samples", File("shard.tar"), class_names=valid.NAMES, then=read_all, weight=12),
    calls("pta.datasets:open_samples", File("listed", lambda path: path / "list.csv"), then=read_all, weight=12),
    *(
        calls(
            "pta.datasets:open_samples", source, root=File("datasets", Path), class_names=None, then=read_all, weight=4
        )
        for source in ("dtd", "fgvc_aircraft", "imagenet_a", "imagenet_v2", "imagenet_c/fog/5")
    ),
    calls("pta.datasets:SampleFile", Own(lambda scene: scene.file("picture.png")), "key", then=read_one),
    calls(
        "pta.datasets:SampleFile",
        Made(lambda scene: scene.files / "picture.png"),
        "key",
        covers=["pta.datasets:SampleSet"],
    ),
    calls("pta.datasets.catalogue:find_entry", "imagenet_c/fog/5"),
    calls("pta.datasets.catalogue:is_catalogued", "dtd"),
    calls("pta.datasets.catalogue:catalogue", then=all_records),
    calls("pta.datasets.check:check", "dtd", File("datasets", Path), weight=4),
    calls("pta.datasets.fashion:load_fashion_test"),
    calls("pta.files:load_tensors", File("segment.safetensors", Path), Own(lambda scene: "segment")),
    calls("pta.files:read_json", File("records.json", Path), "record"),
    # orders
    calls("pta.streams:iid", 10, 3),
    calls("pta.streams:dirichlet", valid.LABELS, 0.1, 1, batch=4, slots=None, weight=4),
    calls("pta.streams:slot_count", 100, 10, 8),
    calls("pta.streams:separate", valid.LABELS, 1),
    calls("pta.streams:drifting", valid.LABELS, 1),
    calls("pta.streams:poisoned", np.arange(4), np.array([0, 1, 0, 1]), np.full((4, 2), 0.5), prefix=2, confidence=0.4),
    calls("pta.streams:batches", np.arange(10), 3, drop_last=True),
    calls("pta.streams:kept", 10, 3, drop_last=True),
    # evaluation
    Target(
        "evaluate",
        evaluate_methods,
        8,
        ("pta.evaluation.evaluate:evaluate", "pta.evaluation.evaluate:Summary", "pta.evaluation.stream:Stream"),
    ),
    Target(
        "sweep",
        sweep_grid,
        4,
        (
            *("pta.evaluation.sweep:Grid", "pta.evaluation.sweep:Point", "pta.evaluation.sweep:sweep"),
            *("pta.evaluation.sweep:sweep_csv", "pta.evaluation.cached_evaluation:evaluate_once"),
        ),
    ),
    Target(
        "compare",
        compare_records,
        16,
        (
            *("pta.evaluation.record_files:read_contenders", "pta.evaluation.contenders:pair"),
            *("pta.evaluation.contenders:Choice", "pta.evaluation.contenders:names"),
            *("pta.evaluation.compare:Resampling",),
            *("pta.evaluation.contenders:Contender", "pta.evaluation.contenders:shared_datasets"),
            *("pta.evaluation.compare:compare", "pta.evaluation.compare:Comparison"),
        ),
    ),
    Target(
        "ResultStore",
        use_store,
        10,
        ("pta.evaluation.result_store:ResultStore", "pta.evaluation.result_store:result_key"),
    ),
    calls("pta.evaluation.bits:read_bits", "kA==", 4, weight=4),
    # encoders, data and methods together
    Target(
        "Classifier",
        live_session,
        40,
        tuple(f"pta:Classifier{name}" for name in ("", ".answer", ".save", ".load", ".pipeline")),
    ),
    calls(
        "pta:Classifier",
        Own(lambda scene: valid.encoder()),
        list(valid.CLOTHES),
        templates="clip",
        descriptions=None,
        method="pta",
        device="cpu",
        dtype="float32",
        cache=None,
        views=4,
        expected=10,
        weight=16,
    ),
    Target("compile", program_session, 8, ("pta:compile",)),
    Target(
        "extract",
        extract_folder,
        6,
        tuple(f"pta.inference.{name}" for name in ("extract:extract", "encoding:Reading", "encoding:Views")),
    ),
    Target(
        "predict_stream",
        predict_folder,
        6,
        ("pta.inference.predict:predict_stream", "pta.inference.sources:find_samples"),
    ),
    Target(
        "rows",
        write_rows,
        8,
        tuple(f"pta.inference.{name}" for name in ("answers:answers_from", "rows:JsonLines", "rows:CsvRows")),
    ),
    calls("pta.inference.extract:require_feature_file", Made(lambda scene: scene.folder / "x.safetensors")),
    calls("pta.inference.open_source:open_source", "fashion/blur/2/5", root=None, class_names=list(_FASHION), weight=1),
    calls("pta.inference.open_source:open_fashion", "fashion/blur/2/5", list(_FASHION), weight=1),
    calls("pta.inference.sources:open_places", Made(lambda scene: [str(scene.file("classes"))]), frames=False),
    calls("pta.inference.verify:find_reference", "ViT-B/16", "clip", then=lambda found: found.choose(["dtd"])),
    calls("pta.demo:run_demo", "blur", 2, 1, limit=5, weight=1),
    # experiments
    Target(
        "experiment",
        place_experiment,
        16,
        (
            *("pta.reproduction.declaration:load_experiment", "pta.reproduction.declaration:load_experiments"),
            *("pta.reproduction.plan:place", "pta.reproduction.world:world_with"),
        ),
    ),
    calls("pta.reproduction.declaration:parse_experiment", "mine", valid.EXPERIMENT, weight=6),
    # the command
    command(
        *("eval", "--features", File("features.npz"), "--method", "pta", "--method", "zero", "--seed", "1"),
        *("--set", "pta.h=5", "--stream", "dirichlet", "--gamma", "0.1", "--batch", "8", "--json", "out.json"),
        *("--predictions", "answers"),
        weight=6,
    ),
    command(
        "eval", "--features", File("features.safetensors"), "--method", "all", "--preset", "paper/dtd", "--json", "-"
    ),
    command(
        "compare", File("records.json"), "--a", "clip", "--b", "pta", "--resamples", "1000", "--level", "0.9", weight=6
    ),
    command(
        *("sweep", "--features", File("features.npz"), "--set", "pta.h=5,20", "--seed", "1", "--results"),
        *(File("store"),),
        *("--csv", "out.csv", "--json", "out.json"),
        weight=3,
    ),
    command(
        *("reproduce", File("mine.toml"), "--features", File("features.npz"), "--offline", "--out", "results"),
        *("--seeds", "1"),
        weight=1,
    ),
    command("methods", "pta", "--json", "-", weight=1),
    command(
        *("predict", File("classes"), "--classes", "coat,bag", "--model", "embedded", "--out", "rows.jsonl", "--top"),
        *("2",),
        *("--on-error", "skip", "--workers", "2", "--method", "pta", "--set", "pta.h=5", "--state", "s.safetensors"),
        weight=6,
    ),
    command(
        *("predict", File("picture.png"), "--classes", "coat,bag,sneaker", "--model", "embedded", "--out"),
        *(File("rows.jsonl"),),
        *("--append", "--state", File("live.safetensors"), "--workers", "1"),
        weight=4,
    ),
    command(
        *("predict", "-", "--frames", "--classes", "coat,bag", "--model", "embedded", "--out", "-", "--csv"),
        *("--device", "cpu"),
        *("--on-error", "skip", "--workers", "1"),
        stdin="frames.bin",
        weight=4,
    ),
    command(
        *("predict", "-", "--classes", File("names.txt"), "--model", "embedded", "--descriptions"),
        *(File("descriptions.json"),),
        *("--on-error", "skip", "--workers", "1"),
        stdin="paths.txt",
        weight=3,
    ),
    command(
        *("extract", File("classes"), "--out", "f.safetensors", "--model", "embedded", "--views", "2", "--view-mode"),
        *("crops",),
        *("--seed", "1", "--shard", "2", "--on-error", "skip", "--templates", File("templates.txt"), "--json", "-"),
        *("--workers", "2"),
        weight=5,
    ),
    command(
        "extract",
        File("shard.tar"),
        "--out",
        "f.safetensors",
        "--model",
        "embedded",
        "--classes",
        "a,b,c",
        "--pixels",
        weight=3,
    ),
    command(
        "verify",
        "embedded",
        "--data",
        File("datasets"),
        "--dataset",
        "dtd",
        "--features",
        "f",
        weight=1,
        always_refused=True,
    ),
    command("datasets", "check", "dtd", "--data", File("datasets"), "--json", "-", weight=3),
    command("datasets", "--json", "list.json", weight=1),
    command(
        "demo",
        "--shift",
        "nothing",
        "--severity",
        "3",
        "--seed",
        "1",
        "--report",
        "r.html",
        weight=1,
        always_refused=True,
    ),
)
