"""Class names and templates to text anchors."""

from pta.data.prompts.anchors import TextEncoder, build_classifier
from pta.data.prompts.cache import default_cache
from pta.data.prompts.doubts import DoubtfulClassNames, DuplicateClassNames
from pta.data.prompts.templates import load_templates
from pta.data.prompts.texts import class_texts, load_descriptions

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
