"""Figures are drawn with matplotlib, an extra, imported when the first is wanted."""

from pta.errors import MissingPackage


def require_matplotlib() -> None:
    """Refuse to begin work for a figure that could not be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPackage("figures need matplotlib: pip install 'pta-vlm[figures]'") from None
