"""Public names, modules and packages that are no targets by themselves, by the reason."""

_REASONS = {
    "says what is wrong": "pta:PtaError pta.prompts:DuplicateClassNames pta.errors",
    "abstract": "pta:Adapter pta.encoders:Encoder pta.encoders:ImageEncoder pta.prompts:TextEncoder",
    "for the author of a method": "pta:Adapter.add_state pta:Adapter.refined pta:Adapter.zero_shot",
    "through create_adapter": (
        "pta:Adapter.complete pta:Adapter.needs_with pta:Adapter.require_model pta:Adapter.stands_on "
        "pta.parameters pta.adapters.adapter:require_classifier"
    ),
    "given what was computed or checked": (
        "pta:Adapter.probabilities pta:Adapter.step_unchecked pta:ZeroShotClassifier.logits pta:Samples.to "
        "pta:Samples.unchecked pta:ZeroShotClassifier.scores pta.demo:render_report pta.engines "
        "pta.evaluation.bits:write_bits pta.evaluation.metrics pta.evaluation.number_text "
        "pta.evaluation.compare:points"
    ),
    "through step": "pta:Adapter.require",
    "takes and gives a Reading, which is checked when it is made": "pta:Classifier.reading",
    "through summarise": "pta:Segment.of",
    "through apply and compose": "pta:Segment.require_for",
    "runs a program of the caller's, and says what is wrong with it": "pta:check_adapter",
    "what create_adapter hands to a method": "pta.adapters:Origin",
    "made by open_samples": "pta.datasets:SampleSet pta.datasets:TarMember",
    "made by run_demo": "pta.demo:DemoResult pta.demo:ClassScore",
    "for training": "pta.encoders:EmbeddedConfig",
    "through load_encoder": "pta.encoders:EmbeddedEncoder",
    "through the commands": "pta.cli",
    "through apply_shift": "pta.corruptions",
    "through run_demo": "pta.demo",
    "through load_encoder, with mutated files, and the methods of the encoder": "pta.encoders",
    "loads what is installed": "pta.plugins",
    "loops to be read, which tests call": "pta.reference",
    "through load_experiments, place and the command": "pta.reproduction",
    "called by methods, with tensors that were checked": "pta.towers",
    "through make_views": "pta.views.augmix pta.views.crops",
    "the laws of check_adapter": "pta.adapters.checks",
    "declared by methods; through restore and load_adapter": "pta.adapters.state_bounds",
    "through save and load_adapter": "pta.adapters.state_file",
    "through open_samples": (
        "pta.datasets.class_index pta.datasets.csv_list pta.datasets.folder_layouts pta.datasets.imagenet "
        "pta.datasets.own_folder pta.datasets.shard_names pta.datasets.split_files pta.datasets.webdataset"
    ),
    "through open_samples and find_samples": "pta.datasets.trees",
    "through sweep": "pta.evaluation.cached_evaluation",
    "through compare": "pta.evaluation.compare:bootstrap_means",
    "through names": "pta.evaluation.contenders:as_given",
    "asks for a package": "pta.evaluation.drawing",
    "through evaluate": "pta.evaluation.evaluate:require_same_model pta.evaluation.stream_run",
    "fills in the package's own pages": "pta.evaluation.html_page",
    "takes nothing": "pta.evaluation.machine",
    "through pta sweep --plot": "pta.evaluation.sweep_figure",
    "reads the package's own files": "pta.evaluation.version",
    "through save, extract and the command": "pta.claims",
    "through every reader and writer": "pta.files",
    "says how much there is": "pta.memory",
    "through everything that takes numbers": "pta.plain",
    "through dirichlet": "pta.streams:require_gamma",
    "through poisoned": "pta.streams:require_order",
    "through batches": "pta.streams:require_size",
    "through rows and messages": "pta.safe_text",
    "given a precision": "pta.samples:longest_unit",
    "through decode_image": (
        "pta.images.bare pta.images.jpeg pta.images.reading:load_image pta.images.reading:open_image"
    ),
    "through compile and preprocess": "pta.images.preprocessing:require_bytes",
    "through predict_stream and extract": "pta.inference.encoding pta.inference.feed",
    "asked by compile": "pta.inference.recordable",
    "through rows": "pta.inference.rows:path_as_written pta.inference.rows:columns",
    "through pta predict": "pta.inference.stream_progress",
    "through extract": "pta.inference.shards",
    "through pta verify": "pta.inference.verify:verify",
    "through build_classifier, load_templates and load_descriptions": "pta.prompts",
}
NOT_CALLED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
