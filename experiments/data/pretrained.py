"""Features of a published network that was trained on ImageNet: the body of ``examples/pretrained``, frozen.

They are made image by image, as clients make them, and kept in a file of the temporary folder: 10,000 images take
some minutes.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from experiments.data.features import Pixels, Rows
from rescind.flower import extract_features

_BODY = Path(__file__).parents[2] / "examples" / "pretrained" / "pretrained" / "body.py"


def pretrained(images: Pixels) -> Rows:
    """Return 1,280 features of each image (N, H, W, C), scaled to norm 1."""
    body = body_module()
    cache = Path(tempfile.gettempdir()) / f"rescind-features-{len(images)}-{int(images[:100].sum())}"
    return extract_features(body.Body(), body.as_rows(coloured(images)), cache=cache).astype(np.float64)


def coloured(images: Pixels) -> Pixels:
    """Return images in three colours, which are the same in grey ones."""
    return np.repeat(images, 4 - images.shape[3], axis=3)[..., :3]


def body_module() -> ModuleType:
    """Return the example's module with the body."""
    spec = importlib.util.spec_from_file_location("pretrained_body", _BODY)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{_BODY} is not there: the experiments need the whole repository")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
