"""The demonstration: shifted samples through zero-shot, PTA and other methods, and a report of the results."""

from pta.measure.demo.report import render_report
from pta.measure.demo.result import DemoResult
from pta.measure.demo.run_demo import run_cloud_demo, run_demo

__all__ = ["DemoResult", "render_report", "run_cloud_demo", "run_demo"]
