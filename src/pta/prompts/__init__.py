"""Class names and templates to text anchors."""

from pta.prompts.anchors import TextEncoder, build_classifier
from pta.prompts.cache import default_cache
from pta.prompts.doubts import DoubtfulClassNames, DuplicateClassNames
from pta.prompts.templates import load_templates
from pta.prompts.texts import class_texts, load_descriptions

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
