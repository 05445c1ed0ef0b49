"""A real RTSP server (GStreamer's), for tests; run by the system's Python, which has its bindings.

usage: rtsp_server.py PORT PIPELINE [USER PASSWORD basic|digest]

It prints its port and serves `/stream` until its standard input ends.
"""

import sys
import threading

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(f"( {sys.argv[2]} name=pay0 )")
factory.set_shared(True)
if len(sys.argv) > 4:
    user, password, method = sys.argv[3:]
    auth = GstRtspServer.RTSPAuth()
    chosen = {"basic": GstRtsp.RTSPAuthMethod.BASIC, "digest": GstRtsp.RTSPAuthMethod.DIGEST}[method]
    auth.set_supported_methods(chosen)
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    if method == "basic":
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    else:
        auth.add_digest(user, password, token)
    server.set_auth(auth)
    role = Gst.Structure.new_from_string(
        "user, media.factory.access=(boolean)true, media.factory.construct=(boolean)true"
    )
    factory.add_role_from_structure(role)
server.get_mount_points().add_factory("/stream", factory)
server.attach(None)
print(server.get_bound_port(), flush=True)
loop = GLib.MainLoop()
threading.Thread(target=lambda: (sys.stdin.read(), loop.quit()), daemon=True).start()
loop.run()
