"""The README as the package index shows it: links to files of the repository become links to the repository's address.

The address is `Repository` in `[project.urls]` of pyproject.toml. Without one, links to files go and their text stays.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:)([^)\s]+)\)")
IMAGE = re.compile(r'!\[([^\]]*)\]\((?!https?:)([^)\s]+)\)|<img src="(?!https?:)([^"]+)"([^>]*)>\n*')
MARK = re.compile(r"<!-- .*?-->", flags=re.DOTALL)  # which numbers belong there


def shown(readme: str, repository: str | None, version: str) -> str:
    """The text with addresses of this version in the place of relative ones; without a repository, without links."""

    def link(found: re.Match[str]) -> str:
        return f"[{found[1]}]({repository}/blob/v{version}/{found[2]})" if repository else found[1]

    def image(found: re.Match[str]) -> str:
        if not repository:
            return ""
        place = f"{repository}/raw/v{version}/{found[2] or found[3]}"
        return f"![{found[1]}]({place})" if found[2] else found[0].replace(f'"{found[3]}"', f'"{place}"')

    return LINK.sub(link, IMAGE.sub(image, MARK.sub("", readme)))


class PypiReadme(MetadataHookInterface):
    """What the build calls; pyproject.toml names this file."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the field `readme`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        readme = shown(text, repository and repository.rstrip("/"), metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
