"""Recorded programs, and copies to and from a GPU."""

import os

# CUDA lets its streams share eight queues unless it is told otherwise before it starts. A decoder of pictures has
# fourteen streams: those in the queue of the model wait until all that is queued there is done.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
