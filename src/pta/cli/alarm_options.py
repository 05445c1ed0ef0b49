"""The options of the address that alarms are sent to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pta.errors import InvalidParameter
from pta.run.webhook import Receiver, read_key


@dataclass(frozen=True)
class AlarmOptions:
    """Where alarms are sent."""

    alarm_url: Annotated[str | None, "Send alarms, and changes of pta watch, to this address, as JSON."] = None
    alarm_key: Annotated[Path | None, "File with the key that signs what is sent."] = None
    alarm_host: Annotated[
        list[str] | None, "A host of --alarm-url that may have a private address; may be repeated."
    ] = None

    def __post_init__(self) -> None:
        if self.alarm_url is None and (self.alarm_key is not None or self.alarm_host):
            raise InvalidParameter("--alarm-key and --alarm-host belong to --alarm-url, which is missing")

    def receiver(self) -> Receiver | None:
        """The address with its key, checked."""
        if self.alarm_url is None:
            return None
        key = None if self.alarm_key is None else read_key(self.alarm_key)
        return Receiver(self.alarm_url, key, self.alarm_host or ())
