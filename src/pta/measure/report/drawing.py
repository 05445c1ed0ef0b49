"""Figures need matplotlib, an optional extra that is imported on use."""

from pta.errors import MissingPackage, how_to_install


def require_matplotlib() -> None:
    """Refuse a figure that could not be drawn, before any work."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPackage(f"figures need matplotlib; {how_to_install('figures')}") from None
