"""Public names, modules and packages that are no targets by themselves, by the reason."""

_REASONS = {
    "says what is wrong": "pta:PtaError pta.data.prompts:DoubtfulClassNames pta.data.prompts:DuplicateClassNames pta.errors",
    "abstract": (
        "pta:Adapter pta.models:Encoder pta.models:ImageEncoder pta.models:CloudEncoder pta.data.prompts:TextEncoder"
    ),
    "for the author of a method, or of a model": (
        "pta:Adapter.add_state pta:Adapter.refined pta:Adapter.zero_shot pta.methods:Origin "
        "pta:Adapter.next_refresh pta:Adapter.refresh_state "
        "pta.methods.adapter:full pta.methods.gradient_method "
        "pta.models:EmbeddedConfig"
    ),
    "runs a program of the caller's, and says what is wrong with it": "pta:check_adapter pta.methods.checks",
    "given what was computed or checked": (
        "pta:Adapter.probabilities_unchecked pta:Adapter.step_unchecked pta:Adapter.step_before_refresh "
        "pta:Adapter.refreshes_within pta:Adapter.count_on_host pta:ZeroShotClassifier.logits pta:Samples.to "
        "pta:Samples.unchecked pta:ZeroShotClassifier.scores pta.demo:render_report pta.engines "
        "pta.evaluation.bits:write_bits pta.evaluation.metrics pta.evaluation.number_text "
        "pta.evaluation.compare:points pta.core.towers pta:Classifier.reading pta.core.samples:longest_unit pta.core.compiled "
        "pta.core.host_readable pta.door.images.baseline pta.door.images.decoders pta.door.images.ragged pta.door.images.ragged_kernel "
        "pta.door.points.farthest pta.door.points.neighbours pta.door.points.numba_neighbours"
    ),
    "through create_adapter, step and save": (
        "pta:Adapter.complete pta:Adapter.needs_with pta:Adapter.require_model pta:Adapter.stands_on pta.core.parameters "
        "pta.methods.adapter:require_classifier pta:Adapter.require pta.methods.state_file "
        "pta:Adapter.require_parameters pta.methods.growing:require_new_class "
        "pta.methods.state_bounds"
    ),
    "through run_blocks": (
        "pta.cluster.blocks.bound pta.cluster.blocks.driver pta.cluster.blocks.repair pta.cluster.blocks.replay pta.cluster.blocks.scanning "
        "pta.cluster.blocks.block:require_whole_stream pta.cluster:Group"
    ),
    "tested with a real Ray and with damaged blocks, sources and folders (test_cluster_ray, test_cluster_files)": (
        "pta.cluster.blocks.before_file pta.cluster.ray.extraction pta.cluster.ray.feature_block pta.cluster.ray.label_block "
        "pta.cluster.ray.listing pta.cluster.ray.passes pta.cluster.ray.pool pta.cluster.ray.prediction pta.cluster.ray.ray_pool "
        "pta.cluster.ray.run_folder pta.cluster.ray.sources pta.cluster.ray.storage pta.cluster.ray.streams pta.data.feature_blocks"
    ),
    "through summarise, apply and compose": "pta:Segment.of pta:Segment.require_for pta:Segment.parts",
    "through open_samples and find_samples": (
        "pta.data.class_index pta.data.csv_list pta.data.layouts pta.data.own_folder "
        "pta.data.webdataset pta.data:SampleSet pta.data:TarMember pta.data.trees "
        "pta.data.h5_clouds pta.door.points.h5 pta.door.refused_places"
    ),
    "through read_cloud, corrupt_points and the command": (
        "pta.door.points.cloud pta.door.points.corrupted_sizes pta.door.points.mesh pta.door.points.obj pta.door.points.off pta.door.points.ply "
        "pta.door.points.shapes pta.door.points.text"
    ),
    "through draw_cloud, open_point_shapes and load_furniture_test": (
        "pta.data.shapes:draw_clouds pta.data.shapes.living pta.data.shapes.rooms "
        "pta.data.shapes.seats pta.data.shapes.things pta.data.shapes.vehicles pta.door.points.solids "
        "pta.data.furniture:as_stored pta.data.furniture:from_stored pta.data.point_shapes:corrupted"
    ),
    "through run_demo and apply_shift": "pta.demo pta.demo:DemoResult pta.demo:PartScore pta.data.shifts",
    "through load_encoder, with mutated files, and the methods of the encoder": (
        "pta.models pta.models:EmbeddedEncoder"
    ),
    "through build_classifier, load_templates and load_descriptions": "pta.data.prompts",
    "through decode_image, make_views, compile and preprocess": (
        "pta.door.images.bare pta.door.images.jpeg pta.door.images.reading:load_image pta.door.images.reading:open_counted "
        "pta.door.images.reading:open_image "
        "pta.door.images.reading:require_few_pixels pta.door.images.room:made_in_room pta.door.images.resize_weights "
        "pta.data.views.augmix pta.data.views.crops pta.door.images.preprocessing:require_bytes pta.run.gpu.recordable"
    ),
    "through predict_stream, extract and their commands": (
        "pta.run.extract:stored "
        "pta.run.encoding pta.run.feed.batches pta.run.shards pta.run.saved_stream "
        "pta.run.reading pta.run.gpu.encoder_program pta.run.feed.workers "
        "pta.run.classifier:Classifier.answers pta.run.classifier:crops "
        "pta.run.classifier:require_probabilities "
        "pta.run.verify:matching_references pta.run.verify:require_datasets "
        "pta.run.verify:verify pta.run.row_file:path_as_written pta.run.row_file:columns "
        "pta.run.extract:require_modality"
    ),
    "through dirichlet, poisoned and batches": (
        "pta.data.orders:require_gamma pta.data.orders:require_order pta.data.orders:require_size"
    ),
    "through evaluate, sweep, compare and their commands": (
        "pta.evaluation.evaluate:require_same_model pta.evaluation.stream_run pta.evaluation.cached_evaluation "
        "pta.evaluation.compare:bootstrap_means pta.evaluation.contenders:as_given pta.evaluation.sweep_figure "
        "pta.evaluation.record:predictions_file"
    ),
    "through load_experiments, place and the command": "pta.reproduction",
    "through every reader, writer and message": (
        "pta.door.files pta.door.plain_files pta.door.locks pta.core.plain pta.door.safe_text pta.cli"
    ),
    "takes nothing of a user's": (
        "pta.evaluation.machine pta.core.memory pta.evaluation.version pta.evaluation.html_page pta.evaluation.drawing "
        "pta.core.plugins pta:Adapter.remarks"
    ),
    "refuses whatever it is given": "pta:Adapter.preview",
    "through random requests to the service (tests/test_serve_http_fuzz.py)": "pta.serve",
    "refuses what scikit-learn refuses, whose own checks call it": "pta:PTAClassifier",
    "loops to be read, which tests call": "pta.reference",
}
NOT_CALLED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
