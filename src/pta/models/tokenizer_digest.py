"""Telling tokenizers of transformers apart by everything that changes the ids they give."""

import hashlib
import json
from typing import Any

_SETTINGS = ("split_special_tokens", "padding_side", "truncation_side", "legacy", "do_lower_case", "sp_model_kwargs")


def tokenizer_digest(tokenizer: Any) -> str:
    """A sha256 of kind, settings, special tokens and vocabulary, wherever the files are; taken before its first use.

    A tokenizer that has padded or cut a text remembers how, as part of its rules.
    """
    about = [
        type(tokenizer).__name__,
        [getattr(tokenizer, name, None) for name in _SETTINGS],
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
