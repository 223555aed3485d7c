"""How the pictures of the documentation look: files of their own, on pages and slides that may be white or dark."""

from typing import Any

# Stands for the colour of text and axes, which ``ground`` settles.
INK = "#010203"
BLUE, ORANGE, GREEN, PURPLE = "#3d7dca", "#c2571a", "#5b8c2a", "#a0529c"
# Text and ground: no one grey can be read on both grounds.
LIGHT, DARK = ("#57606a", "#ffffff"), ("#adb5c0", "#161b22")


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


def ground(svg: str) -> str:
    """Return a picture on its own ground, light or dark as the reader's pages are."""
    rules = ["svg{{color:{};background:{}}}".format(*colours) for colours in (LIGHT, DARK)]
    opening, end, rest = svg.replace(INK, "currentColor").partition(">")
    return f"{opening}{end}<style>{rules[0]}@media(prefers-color-scheme:dark){{{rules[1]}}}</style>{rest}"
