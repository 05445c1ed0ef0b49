"""What every test runs under: one thread, and property tests that draw the same examples every time."""

import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are defined
torch.set_num_threads(1)
settings.register_profile("usual", derandomize=True, deadline=None, max_examples=80)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))
