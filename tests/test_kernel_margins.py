"""GPU kernels stay within their tensors: what notices if they do not. `test_triton.py` launches all of them so."""

import pytest
import torch

pytest.importorskip("triton")

import kernel_margins
import sanitizer
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterError

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def write_the_sum(source, target, reads, writes, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(source + at, mask=at < reads, other=0.0), 0)
    tl.store(target + at, total, mask=at < writes)


def is_noticed(reads, writes):
    source, target = torch.ones(5, device=DEVICE), torch.zeros(5, device=DEVICE)
    try:
        kernel_margins.InMargins(write_the_sum)[(1,)](source, target, reads, writes, BLOCK=8)
    except (AssertionError, InterpreterError):
        return True
    return not torch.equal(target, torch.full_like(target, 5.0))


@pytest.mark.parametrize("addresses_are_checked", [True, False])
def test_one_number_beyond_a_tensor_is_noticed(monkeypatch, addresses_are_checked):
    if not addresses_are_checked:  # as on a GPU, where margins alone tell
        monkeypatch.setattr(kernel_margins.Watched, "_check", lambda *access: None)
    assert not is_noticed(reads=5, writes=5)
    assert is_noticed(reads=6, writes=5)
    assert is_noticed(reads=5, writes=6)


def test_a_tensor_that_is_not_contiguous_is_noticed():
    with pytest.raises(AssertionError, match="one after the other"):
        kernel_margins.InMargins(write_the_sum)[(1,)](torch.ones(5, 2).T[0], torch.zeros(2, 5).T, 5, 5, BLOCK=8)


@pytest.mark.skipif(sanitizer.what_is_missing() is not None, reason=f"{sanitizer.what_is_missing()}")
def test_compute_sanitizer_finds_no_error():
    errors, said = sanitizer.errors_found_by("memcheck")
    assert errors == 0, said
