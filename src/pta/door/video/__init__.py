"""Videos and cameras: where they are, which moments are taken, and a process of its own that decodes each."""

from pta.door.video.address import VideoAddress
from pta.door.video.camera import Camera, Frame, require_pyav, video_frames
from pta.door.video.login import Login, require_private
from pta.door.video.region import Region
from pta.door.video.timing import Timing

__all__ = [
    "Camera",
    "Frame",
    "Login",
    "Region",
    "Timing",
    "VideoAddress",
    "require_private",
    "require_pyav",
    "video_frames",
]
