"""The topics of a broker, and what Home Assistant is told about them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from pta import __version__
from pta.run.watch.change import RegionName

ONLINE, OFFLINE = "online", "offline"
Regions = Mapping[RegionName, Sequence[str]]
"""The classes of each region, by the names of camera and region."""


def topic_level(name: str) -> str:
    """A name as one level of a topic: what has a meaning there, or cannot be shown, is written in per cent.

    >>> topic_level("bin #1/2 \\n für 100%")
    'bin %231%2F2 %0A für 100%25'
    """
    escape = partial(quote, safe="", errors="surrogatepass")
    return "".join(sign if sign.isprintable() and sign not in "+#/%" else escape(sign) for sign in name)


@dataclass(frozen=True)
class Topics:
    """Where the answers of the regions, and whether they are up to date, are published."""

    prefix: str

    @property
    def status(self) -> str:
        """Of the process: online or offline."""
        return f"{self.prefix}/status"

    def camera_status(self, camera: str) -> str:
        """Of a camera: online, or offline while no picture comes."""
        return f"{self.prefix}/{topic_level(camera)}/status"

    def state(self, camera: str, region: str) -> str:
        """Of the last change of a region; a whole picture has no level of its own."""
        levels = [self.prefix, topic_level(camera), *filter(None, [topic_level(region)]), "state"]
        return "/".join(levels)

    def discovery(self, regions: Regions) -> Iterator[tuple[str, dict[str, Any]]]:
        """The topic and the message by which Home Assistant finds each region, as a sensor of the camera's device."""
        for (camera, region), classes in regions.items():
            device, sensor = _identifier(f"{self.prefix}/{camera}"), _identifier(region or "picture")
            state = self.state(camera, region)
            yield (
                f"homeassistant/sensor/{device}/{sensor}/config",
                {
                    "name": region or "picture",
                    "unique_id": f"{device}_{sensor}",
                    "device_class": "enum",
                    "options": list(classes),
                    "state_topic": state,
                    "value_template": "{{ value_json.label }}",
                    "json_attributes_topic": state,
                    "availability": [{"topic": self.status}, {"topic": self.camera_status(camera)}],
                    "availability_mode": "all",
                    "device": {"identifiers": [device], "name": camera},
                    "origin": {"name": "pta", "sw_version": __version__},
                },
            )


def _identifier(name: str) -> str:
    """A name that Home Assistant takes; where signs are replaced, with a digest that tells it from others.

    >>> _identifier("gate"), _identifier("pta/yard")
    ('gate', 'pta_yard_6ed373fa')
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return plain if plain == name else f"{plain}_{digest}"
