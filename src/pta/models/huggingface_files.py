"""What a Hugging Face folder or hub name holds: configuration, weights, tokenizer and how its images are made."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pta.door.files import read_json
from pta.door.images import CLIP_PREPROCESSING, Preprocessing
from pta.door.weights.hub import MissingFiles, hub_folder, in_one_line, require_reachable
from pta.door.weights.weights import read_weights
from pta.errors import InvalidParameter, UnavailableModel, UnreadableFile, how_to_install, naming, shown
from pta.models.clip.state_dict import fill

_SMALL_FILES = ["*.json", "*.txt", "*.model"]
_WEIGHTS = "model.safetensors", "pytorch_model.bin"
_SECTIONS = "text_config", "vision_config", "text_config_dict", "vision_config_dict"
_SETTINGS = {
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act", "layer_norm_eps"),
    *("vocab_size", "max_position_embeddings", "image_size", "patch_size", "num_channels"),
    *("projection_dim", "projection_size", "vision_use_head"),
}
_OF_TOKENIZERS = (
    "split_special_tokens",
    "padding_side",
    "truncation_side",
    "legacy",
    "do_lower_case",
    "sp_model_kwargs",
)
_LARGEST_TOKEN = 2**24  # 64 times the largest vocabulary there is
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


@dataclass(frozen=True)
class HuggingFaceFiles:
    """A dual encoder as transformers reads it, in float32."""

    config: Any
    model: Any
    tokenizer: Any
    preprocessing: Preprocessing

    @classmethod
    def read(cls, name: str) -> "HuggingFaceFiles":
        """From a local folder, or by the hub's own client: from its cache, and by network if that does not do."""
        if find_spec("transformers") is None:
            raise UnavailableModel(f"hf: models need transformers; {how_to_install('hf')}")
        with _silent_libraries():
            if Path(name).expanduser().is_dir():
                return _read(Path(name).expanduser(), name)
            _require_hub_name(name)
            try:
                return _read(hub_folder(name, local_files_only=True), name)
            except MissingFiles:
                require_reachable(name, model=f"hf:{name}", instead="folder with --model hf:/path/to/folder")
            folder = hub_folder(name, allow_patterns=[*_SMALL_FILES, "model*.safetensors"])
            if not any(folder.glob("model*.safetensors")):  # a pickle file only if there is nothing better
                hub_folder(name, allow_patterns=["pytorch_model*.bin"])
            return _read(folder, name)


def _read(folder: Path, name: str) -> HuggingFaceFiles:
    config = _config(folder, name)
    preprocessing = _preprocessing(folder, name, config)
    return HuggingFaceFiles(config, _model(folder, name, config), _tokenizer(folder, name), preprocessing)


def _config(folder: Path, name: str) -> Any:
    """What shapes the two towers; whatever else a config.json asks transformers for is left out."""
    from transformers import CLIPConfig, SiglipConfig

    with _reading(name, "its config.json is"):
        said = read_json(folder / "config.json", "configuration")
        kind = said.get("model_type", "nameless")
    if kind == "siglip2":
        raise UnavailableModel(
            f"hf:{name} is a SigLIP 2 model for any resolution (NaFlex), which is not supported; "
            "take one with a fixed resolution, such as hf:google/siglip2-base-patch16-224"
        )
    if kind not in ("clip", "siglip"):
        raise UnavailableModel(f"hf:{name} is a {shown(kind)} model; hf: reads CLIP, SigLIP and SigLIP 2 models")
    with _reading(name, "its config.json is"):
        known = {section: said[section] or {} for section in _SECTIONS if section in said}
        towers = {section: {key: own[key] for key in own.keys() & _SETTINGS} for section, own in known.items()}
        if kind == "siglip":
            return SiglipConfig(**towers, attn_implementation="sdpa")
        return CLIPConfig(**towers, projection_dim=said.get("projection_dim", 512), attn_implementation="sdpa")


def _model(folder: Path, name: str, config: Any) -> Any:
    """The model with its weights, in float32; transformers' own loader, which can do much more, is not used."""
    from transformers import CLIPModel, SiglipModel

    with _reading(name, f"its weights ({' or '.join(_WEIGHTS)}) are"):
        weights = _weights(folder)
    with _reading(name, "its config.json is"):
        for tower in (config.text_config, config.vision_config):
            if tower.num_attention_heads < 1 or not 1 <= tower.num_hidden_layers <= len(weights):
                raise UnavailableModel("no attention heads, no layers, or more layers than weights")
        with torch.device("meta"):
            model = (CLIPModel if config.model_type == "clip" else SiglipModel)(config)
    with naming(f"hf:{name} cannot be used"):
        fill(model, {weight: weights[weight].float() for weight in weights.keys() & model.state_dict().keys()})
    for tower in (model.text_model, model.vision_model):  # the one thing in them that is not a weight
        tower.embeddings.position_ids = torch.arange(tower.embeddings.position_ids.shape[1])[None]
    return model


def _weights(folder: Path) -> dict[str, Tensor]:
    """By name, from one file, or from the files that an index lists."""
    for file in (folder / stem for stem in _WEIGHTS):
        index = file.with_name(f"{file.name}.index.json")
        if file.is_file():
            return read_weights(file).tensors
        if index.is_file():
            parts = {Path(part).name for part in read_json(index, "index of weights")["weight_map"].values()}
            return {name: one for part in sorted(parts) for name, one in read_weights(folder / part).tensors.items()}
    raise UnreadableFile(f"there is no such file in {folder}")


def _tokenizer(folder: Path, name: str) -> Any:
    from transformers import AutoTokenizer

    tokenizer = None
    with _reading(name, "its tokenizer is"), suppress(ImportError):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        largest = max(tokenizer.get_vocab().values(), default=0)
    if tokenizer is None:
        raise UnavailableModel(f"the tokenizer of hf:{name} needs sentencepiece and protobuf; {how_to_install('hf')}")
    if tokenizer.eos_token_id is None:
        raise UnavailableModel(f"the tokenizer of hf:{name} has no token that ends a text")
    if largest > _LARGEST_TOKEN:  # tokenizers makes lists as long as that
        raise UnavailableModel(f"the tokenizer of hf:{name} has a token of the number {largest}")
    return tokenizer


def _preprocessing(folder: Path, name: str, config: Any) -> Preprocessing:
    from transformers.image_processing_base import ImageProcessingMixin

    with _reading(name, "its preprocessor_config.json is"):
        settings, _ = ImageProcessingMixin.get_image_processor_dict(folder)
        if not isinstance(settings, dict):
            raise UnreadableFile("no JSON object")
    with in_one_line(lambda said: f"the images of hf:{name} cannot be prepared: {said}"):
        return preprocessing_from(settings, config.vision_config.image_size, square=config.model_type == "siglip")


def preprocessing_from(settings: dict[str, Any], image_size: int, *, square: bool) -> Preprocessing:
    """Our preprocessing from the settings of a transformers image processor; `square` is SigLIP's default resizing.

    >>> preprocessing_from({"size": 336, "crop_size": 336}, 336, square=False).size
    336
    """
    for switch in ("do_resize", "do_rescale", "do_normalize"):
        if not settings.get(switch, True):
            raise InvalidParameter(f"{switch} is off")
    if settings.get("do_pad") or not abs(settings.get("rescale_factor", 1 / 255) - 1 / 255) <= 1e-9:
        raise InvalidParameter("they are padded, or not scaled by 1/255")
    size = settings.get("size", {"height": 224, "width": 224} if square else {"shortest_edge": 224})
    if isinstance(size, int):
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    crop = settings.get("crop_size", 224) if settings.get("do_center_crop", not square) else None
    both_sides = {"height": image_size, "width": image_size}
    squeezed = size == both_sides and crop is None
    cropped = size == {"shortest_edge": image_size} and crop in (image_size, both_sides)
    if not (squeezed or cropped):
        raise InvalidParameter(f"size {size} with crop {crop} does not give the {image_size}×{image_size} it reads")
    return Preprocessing(
        size=image_size,
        resize="square" if squeezed else "shortest",
        resample=_RESAMPLE.get(settings.get("resample", 3), str(settings.get("resample"))),
        mean=tuple(settings.get("image_mean", (0.5,) * 3 if square else CLIP_PREPROCESSING.mean)),
        std=tuple(settings.get("image_std", (0.5,) * 3 if square else CLIP_PREPROCESSING.std)),
    )


def tokenizer_digest(tokenizer: Any) -> str:
    """A sha256 of kind, settings, special tokens and vocabulary, wherever the files are; taken before its first use.

    A tokenizer that has padded or cut a text remembers how, as part of its rules.
    """
    about = [
        type(tokenizer).__name__,
        [getattr(tokenizer, name, None) for name in _OF_TOKENIZERS],
        tokenizer.special_tokens_map,
        tokenizer.added_tokens_decoder,
    ]
    # The vocabulary and how texts are divided by it, as the library that does so keeps them.
    if tokenizer.is_fast:
        rules = tokenizer.backend_tokenizer.to_str().encode()
    elif hasattr(tokenizer, "sp_model"):
        rules = tokenizer.sp_model.serialized_model_proto()
    else:
        rules = json.dumps(tokenizer.get_vocab(), sort_keys=True).encode()
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=repr).encode() + rules).hexdigest()


# -- what can go wrong before a file is read ---------------------------------------------------------------------------


def _require_hub_name(name: str) -> None:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UnavailableModel(f"hf:{name} is neither a folder on this machine nor a name on the hub") from None


def _reading(name: str, what: str) -> AbstractContextManager[None]:
    """Say what of a model it is that transformers cannot read."""
    told = f"hf:{name} cannot be used: {what} missing or cannot be read"
    return in_one_line(lambda said: f"{told} ({said})", MissingFiles)


@contextmanager
def _silent_libraries() -> Iterator[None]:
    """No reports and no bars from the libraries while they load; the bar of a real download stays."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    before = logging.get_verbosity(), hub.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    hub.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.set_verbosity(before[0])
        hub.set_verbosity(before[1])
        if before[2]:
            logging.enable_progress_bar()
