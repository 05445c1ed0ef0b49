"""Class names and templates to text anchors."""

from pta.data.prompts.anchors import TextEncoder, build_classifier, default_cache
from pta.data.prompts.templates import load_templates
from pta.data.prompts.texts import DoubtfulClassNames, DuplicateClassNames, class_texts, load_descriptions

__all__ = [
    "DoubtfulClassNames",
    "DuplicateClassNames",
    "TextEncoder",
    "build_classifier",
    "class_texts",
    "default_cache",
    "load_descriptions",
    "load_templates",
]
