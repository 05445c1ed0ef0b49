"""Labelled datasets, for adaptation and evaluation."""

from pta.datasets.open import open_samples
from pta.datasets.sample_set import SampleFile, SampleSet, TarMember

__all__ = ["SampleFile", "SampleSet", "TarMember", "open_samples"]
