"""The demonstration: shifted samples through zero-shot and PTA side by side, and a page that shows what came of it."""

from pta.demo.cloud_demo import run_cloud_demo
from pta.demo.report import render_report
from pta.demo.result import ClassScore, DemoResult
from pta.demo.run_demo import run_demo

__all__ = ["ClassScore", "DemoResult", "render_report", "run_cloud_demo", "run_demo"]
