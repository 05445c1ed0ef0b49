"""Labelled datasets, for adaptation and evaluation."""

from pta.data.open import open_samples
from pta.data.sample_set import SampleFile, SampleSet, TarMember

__all__ = ["SampleFile", "SampleSet", "TarMember", "open_samples"]
