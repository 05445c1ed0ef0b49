"""Examples in docstrings are shown as code."""

import re

import griffe

DOCTEST = re.compile(r"(?:^>>> .*\n(?:^(?!>>> )\S.*\n|^\.\.\. .*\n|^    .*\n)*)+", flags=re.MULTILINE)


class Examples(griffe.Extension):
    """Puts every doctest into a fence, so that brackets in its output are no links."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of a module, class or function as soon as it is read."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>```\n", obj.docstring.value + "\n")
