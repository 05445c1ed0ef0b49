"""What a Hugging Face folder or hub name holds: configuration, weights, tokenizer and how its images are made."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from pta.encoders.hub import require_reachable
from pta.errors import InvalidParameter, UnavailableModel, first_line
from pta.images import CLIP_PREPROCESSING, Preprocessing

_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class _Unreadable(UnavailableModel):
    """A file is missing or damaged, so it may be worth fetching."""


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
            raise UnavailableModel("hf: models need transformers; pip install 'pta-vlm[hf]'")
        os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # transformers would ask the hub to convert files
        with _silent_libraries():
            if Path(name).expanduser().is_dir():
                return _read(str(Path(name).expanduser()), name, local=True)
            _require_hub_name(name)
            try:
                return _read(name, name, local=True)
            except _Unreadable:
                require_reachable(name, model=f"hf:{name}", instead="folder with --model hf:/path/to/folder")
                return _read(name, name, local=False)


def _read(source: str, name: str, *, local: bool) -> HuggingFaceFiles:
    from transformers import AutoConfig

    with _reading(name, "its config.json is"):
        config = AutoConfig.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    _require_dual_encoder(name, config)
    preprocessing = _preprocessing(source, name, config, local)
    return HuggingFaceFiles(config, _model(source, name, config, local), _tokenizer(source, name, local), preprocessing)


def _require_dual_encoder(name: str, config: Any) -> None:
    if config.model_type == "siglip2":
        raise UnavailableModel(
            f"hf:{name} is a SigLIP 2 model for any resolution (NaFlex), which is not supported; "
            "take one with a fixed resolution, such as hf:google/siglip2-base-patch16-224"
        )
    if config.model_type not in ("clip", "siglip"):
        raise UnavailableModel(
            f"hf:{name} is a {config.model_type or 'nameless'} model; hf: reads CLIP, SigLIP and SigLIP 2 models"
        )


def _model(source: str, name: str, config: Any, local: bool) -> Any:
    from transformers import CLIPModel, SiglipModel

    kind = CLIPModel if config.model_type == "clip" else SiglipModel
    with _reading(name, "its weights (model.safetensors or pytorch_model.bin) are"):
        model, report = kind.from_pretrained(
            source,
            config=config,
            local_files_only=local,
            weights_only=True,  # of an old pytorch_model.bin, a pickle file, nothing but tensors is read
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    if lacks := sorted(report["missing_keys"]):
        raise UnavailableModel(
            f"hf:{name} lacks {len(lacks)} of the weights its config.json asks for, such as {lacks[0]}"
        )
    return model


def _tokenizer(source: str, name: str, local: bool) -> Any:
    from transformers import AutoTokenizer

    needed = f"the tokenizer of hf:{name} needs sentencepiece and protobuf; pip install 'pta-vlm[hf]'"
    with _reading(name, "its tokenizer is", if_not_installed=needed):
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    if tokenizer.eos_token_id is None:
        raise UnavailableModel(f"the tokenizer of hf:{name} has no token that ends a text")
    return tokenizer


def _preprocessing(source: str, name: str, config: Any, local: bool) -> Preprocessing:
    from transformers.image_processing_base import ImageProcessingMixin

    with _reading(name, "its preprocessor_config.json is"):
        settings, _ = ImageProcessingMixin.get_image_processor_dict(source, local_files_only=local)
    try:
        return preprocessing_from(settings, config.vision_config.image_size, square=config.model_type == "siglip")
    except (InvalidParameter, TypeError, ValueError) as error:
        raise UnavailableModel(f"the images of hf:{name} cannot be prepared: {first_line(error)}") from None


def preprocessing_from(settings: dict[str, Any], image_size: int, *, square: bool) -> Preprocessing:
    """Our preprocessing from the settings of a transformers image processor; `square` is SigLIP's default resizing.

    >>> preprocessing_from({"size": 336, "crop_size": 336}, 336, square=False).size
    336
    """
    for switch in ("do_resize", "do_rescale", "do_normalize"):
        if not settings.get(switch, True):
            raise InvalidParameter(f"{switch} is off")
    if settings.get("do_pad") or abs(settings.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-9:
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


# -- what can go wrong before a file is read ---------------------------------------------------------------------------


def _require_hub_name(name: str) -> None:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UnavailableModel(f"hf:{name} is neither a folder on this machine nor a name on the hub") from None


@contextmanager
def _reading(name: str, what: str, if_not_installed: str | None = None) -> Iterator[None]:
    """Say what of a model it is that transformers cannot read."""
    try:
        yield
    except Exception as error:
        if if_not_installed and isinstance(error, ImportError):
            raise UnavailableModel(if_not_installed) from None
        complaint = f"hf:{name} cannot be used: {what} missing or cannot be read ({first_line(error)})"
        raise _Unreadable(complaint) from None


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before[0])
        hub.set_verbosity(before[1])
        if before[2]:
            logging.enable_progress_bar()
