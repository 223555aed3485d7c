"""How the pictures of the documentation look: they are files of their own, on pages that may be white or dark."""

from typing import Any

# Can be read on both.
INK = "#7b808a"
BLUE, ORANGE, GREEN, PURPLE = "#3d7dca", "#c2571a", "#5b8c2a", "#a0529c"


def style(name: str) -> dict[Any, Any]:
    """Return matplotlib's settings for a picture, which has the same bytes every time."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
