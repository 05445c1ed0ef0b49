"""Class names and templates to text anchors."""

from pta.prompts.anchors import TextEncoder, build_classifier, class_texts
from pta.prompts.cache import default_cache
from pta.prompts.descriptions import load_descriptions
from pta.prompts.names import DuplicateClassNames
from pta.prompts.templates import load_templates

__all__ = [
    "DuplicateClassNames",
    "TextEncoder",
    "build_classifier",
    "class_texts",
    "default_cache",
    "load_descriptions",
    "load_templates",
]
