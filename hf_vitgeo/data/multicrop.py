"""DINO's views of a picture: two global crops and several small ones, each coloured, blurred and solarized by chance.

Strengths and probabilities are those of the published recipe (PROTOCOLS C.2). Its blur has a radius of .1 to 2 pixels
of a 224-pixel crop; in smaller crops the radius shrinks by the same factor, so that it hides as much of the picture.
"""

# V views of one kind, H x W pixels

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import v2

from hf_vitgeo.data.shifts import solarize

#: Probabilities of blur, and of solarization, for the first global view, the second one, and the local ones.
_BLUR, _SOLARIZE = (1.0, 0.1, 0.5), (0.0, 0.2, 0.0)
_SOLARIZE_FROM = 128
_REFERENCE_SIZE = 224


class MultiCrop:
    """A picture -> its global and local views. All randomness comes from torch's global generator.

    Args:
        global_size: side of the two global crops in pixels.
        local_size: side of the local ones. A crop that is larger than what it is cut from is enlarged.
        num_local: how many; 0 for none.
        global_scale: smallest and largest share of the picture's area in a global crop.
        local_scale: likewise in a local one.
        mean: of the channels in [0, 1].
        std: likewise.
        horizontal_flip: whether to mirror every other view, on average.

    Raises:
        ValueError: for sizes or shares that are impossible; it names them.
    """

    def __init__(
        self,
        global_size: int,
        local_size: int,
        num_local: int,
        global_scale: Sequence[float],
        local_scale: Sequence[float],
        mean: Sequence[float],
        std: Sequence[float],
        horizontal_flip: bool = True,
    ):
        if num_local < 0:
            raise ValueError(f"num_local is {num_local}; allowed is a whole number of at least 0")
        for name, size in (("global_size", global_size), ("local_size", local_size)):
            if size < 1:
                raise ValueError(f"{name} is {size}; allowed is a whole number of at least 1")
        if num_local and local_size > global_size:
            raise ValueError(f"local_size is {local_size}; allowed is at most global_size, which is {global_size}")
        for name, scale in (("global_scale", global_scale), ("local_scale", local_scale)):
            if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
                raise ValueError(f"{name} is {tuple(scale)}; allowed are two shares in (0, 1], the smaller one first")
        self.num_local, self.horizontal_flip = num_local, horizontal_flip
        self.sizes = (global_size, local_size)
        bicubic = v2.InterpolationMode.BICUBIC
        self.global_crop, self.local_crop = (
            v2.RandomResizedCrop((size, size), scale=tuple(scale), interpolation=bicubic)
            for size, scale in ((global_size, global_scale), (local_size, local_scale))
        )
        self.jitter = v2.ColorJitter(0.4, 0.4, 0.2, 0.1)
        self.mean, self.std = (torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (mean, std))

    def __call__(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """A PIL image of mode RGB -> `global_crops` (2, 3, H, W) and `local_crops` (V, 3, h, w), normalised."""
        views = {"global_crops": torch.stack([self._view(image, self.global_crop, which) for which in (0, 1)])}
        if self.num_local:
            views["local_crops"] = torch.stack([self._view(image, self.local_crop, 2) for _ in range(self.num_local)])
        return views

    def _view(self, image: Image.Image, crop: Any, which: int) -> torch.Tensor:
        flip, jitter, grey, blur, sunny, radius = torch.rand(6).tolist()
        image = crop(image)
        if self.horizontal_flip and flip < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if jitter < 0.8:
            image = self.jitter(image)
        if grey < 0.2:
            image = image.convert("L").convert("RGB")
        if blur < _BLUR[which]:
            # PIL's radius is the standard deviation in pixels
            size = (0.1 + 1.9 * radius) * image.width / _REFERENCE_SIZE
            image = image.filter(ImageFilter.GaussianBlur(size))
        if sunny < _SOLARIZE[which]:
            image = solarize(image, _SOLARIZE_FROM)
        # (H, W, 3) -> (3, H, W)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        return pixels.div_(255).sub_(self.mean).div_(self.std)
