"""`openclip:` models, by open_clip. It is an optional extra and brings torchvision, so it is imported on use only."""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.overrides import TorchFunctionMode

from pta.door.files import read_json
from pta.door.images import Preprocessing
from pta.door.weights.hub import MissingFiles, hub_folder, in_one_line, require_reachable
from pta.door.weights.weights import read_weights
from pta.errors import UnavailableModel, how_to_install, nearest, shown
from pta.models.encoder import ImageEncoder, at_end
from pta.models.huggingface_files import tokenizer_digest

_PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
_WEIGHTS, _SAFE_WEIGHTS = "open_clip_pytorch_model.bin", "open_clip_model.safetensors"  # where a tag names no file
_INSTEAD = "file: --model openclip:ARCHITECTURE/FILE"
_NO_WEIGHTS = "input_resolution", "context_length", "vocab_size"  # of OpenAI's archives
_TOKENIZER_OPTIONS = {"clean", "strip_sep_token", "language", "additional_special_tokens", "reduction_mask"}
_MOST_LAYERS, _LARGEST_NUMBER = 1000, 2**20
_FACTORIES = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange}
_NUMBERS_BESIDE_WEIGHTS = 2**20  # such as a mask for attention
_TEXT_PARTS = ("token_embedding", "positional_embedding", "transformer", "ln_final", "text_projection", "attn_mask")


class OpenClipEncoder(ImageEncoder):
    """A dual encoder of open_clip."""

    def __init__(self, model: Any, tokenizer: Any, architecture: str, config: dict[str, Any]) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.preprocess = _preprocessing(architecture, model.visual.preprocess_cfg)
        self.architecture = re.sub(r"^ViT-(\w)-(\d+)", r"ViT-\1/\2", architecture)
        # CLIP's own tokenizer comes with open_clip and is described by the configuration, one of transformers by files.
        self._of_transformers = getattr(tokenizer, "tokenizer", None)
        digest = None if self._of_transformers is None else tokenizer_digest(self._of_transformers)
        self.dim, self.settings = int(config["embed_dim"]), {"model": config, "tokenizer": digest}
        self.scale = model.logit_scale.exp().item()  # now, while it is float32
        self.bias = 0.0 if model.logit_bias is None else float(model.logit_bias)

    @classmethod
    def load(cls, name: str) -> "OpenClipEncoder":
        """`ARCHITECTURE/TAG`, `ARCHITECTURE/FILE` or `hf-hub:REPOSITORY`, for inference in float32."""
        open_clip = _open_clip()
        with _without_warnings(open_clip):
            on_hub = name.startswith("hf-hub:")
            source, options = (_repository(name), {}) if on_hub else _architecture_and_weights(open_clip, name)
            folder = Path(source.removeprefix("local-dir:"))
            with in_one_line(lambda said: f"openclip:{name} cannot be loaded: {said}"):
                if on_hub:
                    _require_harmless(folder)
                with _NoLargerThanWeights(folder) if on_hub else nullcontext():
                    model = open_clip.create_model(source, require_pretrained=True, **options)
                tokenizer = open_clip.get_tokenizer(source)
                config = open_clip.get_model_config(source)
                config = {**config, "quick_gelu": options.get("force_quick_gelu") or config.get("quick_gelu", False)}
                return cls(model, tokenizer, name.removeprefix("hf-hub:") if on_hub else source, config)

    def features(self, pixels: Tensor) -> Tensor:
        return self.model.encode_image(pixels, normalize=True)

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """Texts, at least one, to N×dim unit rows, also by text towers that do not take embeddings."""
        if self._reads_embeddings:
            return super().text_features(texts)
        ids, _ = self.tokenize(texts)
        return normalize(self.model.encode_text(ids), dim=-1)

    def tokenize(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Token ids and mask, up to the first end token; too long a text is refused by CLIP's own tokenizer."""
        if self._of_transformers is None:  # the others cut texts as in their model's training
            lengths = (len(self.tokenizer.encode(text)) for text in texts)
            self._require_short(texts, lengths, self.tokenizer.context_length - 2)
            end = self.tokenizer.eot_token_id
        else:
            end = self._of_transformers.eos_token_id
        ids = self.tokenizer(list(texts)).to(self.device)
        ends = ids == end
        mask = ends.cumsum(dim=1) - ends.long() == 0
        if getattr(self._text, "attn_mask", None) is not None and self._reads_embeddings:
            longest = int(mask.sum(dim=1).max())
            return ids[:, :longest], mask[:, :longest]  # what comes after the end is not seen before it
        return ids, mask

    def embed_ids(self, ids: Tensor) -> Tensor:
        if not self._reads_embeddings:
            raise self._no_embeddings()
        return self._text.token_embedding(ids)

    def text_from_embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Token embeddings N×L×width to N×dim unit rows, read where the model reads: at the end token or the last."""
        text, length = self._text, embeddings.shape[1]
        visible = None if text.attn_mask is None else text.attn_mask[:length, :length]
        positioned = embeddings.to(self.dtype) + text.positional_embedding[:length]
        hidden = text.ln_final(text.transformer(positioned, attn_mask=visible))
        read = hidden[:, -1] if self._pooling == "last" else at_end(hidden, mask)
        projection = text.text_projection
        return normalize(projection(read) if isinstance(projection, nn.Module) else read @ projection, dim=-1)

    @property
    def _text(self) -> Any:
        """The module that holds the parts of the text tower: the model itself in CLIP's first layout."""
        return getattr(self.model, "text", self.model)

    @property
    def _pooling(self) -> str | None:
        return getattr(self._text, "text_pool_type", getattr(self._text, "pool_type", None))

    @property
    def _reads_embeddings(self) -> bool:
        text = self._text
        complete = all(hasattr(text, part) for part in _TEXT_PARTS) and text.text_projection is not None
        special = getattr(text, "cls_emb", None) is not None or getattr(text, "use_pad_mask", False)
        return complete and not special and self._pooling in ("argmax", "eos", "last")


def _open_clip() -> Any:
    advice = f"{how_to_install('openclip')}, with the torchvision that belongs to torch {torch.__version__}"
    for library in ("open_clip", "torchvision"):
        if find_spec(library) is None:
            raise UnavailableModel(f"openclip: models need {library}, which is not installed; {advice}")
    with in_one_line(lambda said: f"open_clip does not load ({said}); {advice}"):  # for a torchvision of another torch
        return import_module("open_clip")


def _architecture_and_weights(open_clip: Any, name: str) -> tuple[str, dict[str, Any]]:
    """The architecture, and how to load its weights: a local file, with the settings that its tag has."""
    architecture, _, weights = name.partition("/")
    if architecture not in open_clip.list_models():
        raise UnavailableModel(f"open_clip has no {architecture!r}; {nearest(architecture, open_clip.list_models())}")
    tags = open_clip.list_pretrained_tags_by_model(architecture)
    about = open_clip.get_pretrained_cfg(architecture, weights) if weights else None
    if about:
        settings = {key: about[key] for key in _PREPROCESSING if key in about}
        options = {"force_preprocess_cfg": settings, "force_quick_gelu": bool(about.get("quick_gelu"))}
        return architecture, {"pretrained": _fetched(open_clip, name, about), **options}
    if Path(weights).expanduser().is_file():
        return architecture, {"pretrained": str(Path(weights).expanduser())}
    raise UnavailableModel(
        f"openclip:{name} names neither a file with weights nor a tag that open_clip has for {architecture}; "
        f"{nearest(weights, tags) if tags else 'it has none, give a file'}"
    )


def _fetched(open_clip: Any, name: str, about: dict[str, Any]) -> str:
    """The local file of a tag's weights, fetched by open_clip unless the hub's cache has it."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, file = about.get("hf_hub", "").rpartition("/")
    if repository:
        named = (file, f"{Path(file).stem}.safetensors")  # which open_clip takes in its place where there is one
        for candidate in named if file else (_SAFE_WEIGHTS, _WEIGHTS):
            if isinstance(cached := try_to_load_from_cache(repository, candidate), str):
                return cached
        require_reachable(repository, model=f"openclip:{name}", instead=_INSTEAD)
    with in_one_line(lambda said: f"openclip:{name} could not be fetched: {said}"):
        return str(open_clip.download_pretrained(about))


def _repository(name: str) -> str:
    """The local folder of a repository of open_clip's on the hub, in open_clip's notation."""
    repository = name.removeprefix("hf-hub:")
    wanted = ["*.json", "*.txt", "*.model", "open_clip*.safetensors"]
    try:
        return f"local-dir:{hub_folder(repository, allow_patterns=wanted, local_files_only=True)}"
    except MissingFiles:
        require_reachable(repository, model=f"openclip:{name}", instead=_INSTEAD)
    return f"local-dir:{hub_folder(repository, allow_patterns=wanted)}"


def _preprocessing(architecture: str, about: dict[str, Any]) -> Preprocessing:
    size, mode = about["size"], about["resize_mode"]
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) > 1 or mode not in ("shortest", "squash"):
        raise UnavailableModel(f"the images of {architecture} cannot be prepared: size {size}, resize mode {mode}")
    mean, std = tuple(about["mean"]), tuple(about["std"])
    return Preprocessing(sides.pop(), "square" if mode == "squash" else "shortest", about["interpolation"], mean, std)


@contextmanager
def _without_warnings(open_clip: Any) -> Iterator[None]:
    """No warnings, and files of weights are read by `read_weights`, whatever open_clip would do with them."""
    theirs, open_clip.factory.load_state_dict = open_clip.factory.load_state_dict, _state_dict
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        open_clip.factory.load_state_dict = theirs


def _state_dict(path: str, **_: Any) -> dict[str, Tensor]:
    weights = read_weights(Path(path)).tensors
    return {name.removeprefix("module."): weight for name, weight in weights.items() if name not in _NO_WEIGHTS}


def _require_harmless(folder: Path) -> None:
    """Refuse a configuration with absurd numbers, or with options for transformers, such as `trust_remote_code`."""
    path = folder / "open_clip_config.json"
    pending = [("", read_json(path, "configuration"))]
    while pending:
        name, value = pending.pop()
        most = _MOST_LAYERS if name == "layers" else _LARGEST_NUMBER
        unknown = value.keys() - _TOKENIZER_OPTIONS if name == "tokenizer_kwargs" and isinstance(value, dict) else ()
        if unknown or (isinstance(value, int | float) and not abs(value) <= most):
            raise UnavailableModel(f"{path} asks for {shown(name)}: {shown(value)}, which is not supported")
        if isinstance(value, dict):
            pending.extend(value.items())
        elif isinstance(value, list):
            pending.extend((name, one) for one in value)


class _NoLargerThanWeights(TorchFunctionMode):
    """Within it a model can be made, as long as the files of weights in a folder could hold its numbers."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        held = [file.stat().st_size for file in folder.iterdir() if file.suffix in (".safetensors", ".bin", ".pth")]
        self._left = 2 * sum(held) + _NUMBERS_BESIDE_WEIGHTS  # for the bytes that are read, and for the model

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _FACTORIES:
            size = args[0] if args and isinstance(args[0], Sequence) else args
            self._left -= math.prod(side for side in size if isinstance(side, int))
            if self._left < 0:
                raise UnavailableModel("the configuration asks for a model that is larger than its weights")
        return function(*args, **(kwargs or {}))
