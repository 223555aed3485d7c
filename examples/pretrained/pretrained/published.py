"""What everybody agrees on: which network makes the features, and what the images show."""

from __future__ import annotations

NAME = "EfficientNet-Lite0, ImageNet, 128 x 128"
# What rescind.flower.digest_body says of it.
DIGEST = "34de01e867fb0601e278a387eeed216fb37ce52d9ada3795b7b65a55bd0c4e28"
FEATURES, CLASSES = 1280, 10
