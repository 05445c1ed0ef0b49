"""Small random CLIP, SigLIP and SigLIP 2 models, written to folders as transformers' own ones are on the hub."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

try:
    from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil
except ImportError:  # in transformers 4 their names have no end
    from transformers import CLIPImageProcessor as CLIPImageProcessorPil  # noqa: F401
    from transformers import SiglipImageProcessor as SiglipImageProcessorPil

TRANSFORMERS_5 = int(transformers.__version__.partition(".")[0]) >= 5
needs_transformers_5 = pytest.mark.skipif(not TRANSFORMERS_5, reason="transformers 4 cannot do it")

IMAGE_SIZE, PATCH_SIZE, DIM = 64, 16, 32
CLIP_LENGTH, SIGLIP_LENGTH = 77, 64

_TOWER = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
_VISION = {**_TOWER, "image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE}
_MERGES = [("t", "h"), ("th", "e</w>"), ("o", "f</w>"), ("p", "h"), ("ph", "o"), ("a", "t</w>")]
_PRINTABLE = [chr(code) for code in range(33, 127)]
_SENTENCES = [
    "a photo of a cat",
    "a photo of the dog",
    "the quick brown fox jumps over the lazy dog",
    "itap of 0123456789",
]


def write_hf_clip(folder: Path, seed: int = 0, *, legacy_end: bool = False) -> Path:
    """A CLIP folder; `legacy_end` gives its configuration the end token 2, as OpenAI's folders on the hub have it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"{letter}</w>" for letter in alphabet), *map("".join, _MERGES)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    text = {
        **_TOWER,
        "vocab_size": len(tokens),
        "max_position_embeddings": CLIP_LENGTH,
        "bos_token_id": len(tokens) - 2,
        "eos_token_id": 2 if legacy_end else len(tokens) - 1,
        "pad_token_id": len(tokens) - 1,
    }
    torch.manual_seed(seed)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=_VISION, projection_dim=DIM))
    _write_model(folder, model)
    _write_json(folder / "vocab.json", {token: number for number, token in enumerate(tokens)})
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, _MERGES)]) + "\n")
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer", "model_max_length": CLIP_LENGTH})
    _write_json(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": IMAGE_SIZE,  # a bare number, as OpenAI's folders on the hub have it
            "crop_size": IMAGE_SIZE,
            "do_center_crop": True,
            "resample": 3,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
        },
    )
    return folder


def write_hf_siglip(folder: Path, seed: int = 0, *, pieces: Sequence[str] = ()) -> Path:
    """A SigLIP folder, its tokenizer a sentencepiece model of characters, a few words and the given `pieces`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*_SENTENCES, " ".join(_PRINTABLE)] * 4),
        model_writer=model,
        vocab_size=150,
        hard_vocab_limit=False,  # how many pieces these sentences give depends on the release of sentencepiece
        user_defined_symbols=list(pieces),
        unk_id=2,
        eos_id=1,
        pad_id=0,
        bos_id=-1,
        add_dummy_prefix=False,
        num_threads=1,
        minloglevel=2,
    )
    _write_siglip(folder, seed, vocabulary=200, resample=3)
    (folder / "spiece.model").write_bytes(model.getvalue())
    _write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "SiglipTokenizer", "model_max_length": SIGLIP_LENGTH, "do_lower_case": True},
    )
    return folder


def write_hf_siglip2(folder: Path, seed: int = 0, *, tokenizer_class: str = "GemmaTokenizer") -> Path:
    """A SigLIP 2 folder of fixed resolution: SigLIP's model with Gemma's kind of tokenizer, which keeps capitals."""
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    tokens += [*_PRINTABLE, "ph", "pho", "th"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [("p", "h"), ("ph", "o"), ("t", "h")]
    tokenizer = Tokenizer(BPE(vocabulary, merges, fuse_unk=True, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(tokens[:5])
    tokenizer.post_processor = processors.TemplateProcessing("$A <eos>", None, [("<eos>", 1)])
    _write_siglip(folder, seed, vocabulary=len(tokens), resample=2)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": tokenizer_class,
            "add_bos_token": False,
            "add_eos_token": True,
            "padding_side": "right",
            **{f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")},
            "model_input_names": ["input_ids"],
        },
    )
    return folder


def _write_siglip(folder: Path, seed: int, *, vocabulary: int, resample: int) -> None:
    text = {**_TOWER, "vocab_size": vocabulary, "max_position_embeddings": SIGLIP_LENGTH}
    torch.manual_seed(seed)
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=_VISION))
    with torch.no_grad():
        model.logit_scale.fill_(4.7)
        model.logit_bias.fill_(-12.9)
    _write_model(folder, model)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    SiglipImageProcessorPil(size=size, resample=resample).save_pretrained(folder)


def _write_model(folder: Path, model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start of training, so that inputs make a difference
            if parameter.ndim > 1:
                parameter.mul_(3)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
