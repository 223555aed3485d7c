"""How to forget: one file for each method, one interface for all of them."""

from rescind.methods.dp import Dp
from rescind.methods.exact import Exact
from rescind.methods.fine_tuning import FineTuning
from rescind.methods.last import Last
from rescind.methods.method import Certifying, Heuristic, Method
from rescind.methods.scratch import Scratch
from rescind.methods.sifu import PaperSifu, Sifu, StrictSifu
from rescind.methods.solve import Solve

__all__ = [
    "Certifying",
    "Dp",
    "Exact",
    "FineTuning",
    "Heuristic",
    "Last",
    "Method",
    "PaperSifu",
    "Scratch",
    "Sifu",
    "Solve",
    "StrictSifu",
]
