"""Figures are drawn with matplotlib, an extra, imported when the first is wanted."""

from pta.errors import MissingPackage, how_to_install


def require_matplotlib() -> None:
    """Refuse to begin work for a figure that could not be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPackage(f"figures need matplotlib; {how_to_install('figures')}") from None
