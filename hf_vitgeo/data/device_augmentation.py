"""Training augmentation of whole batches on the device, each picture with parameters of its own.

torchvision on a batch draws one set of parameters for all of it. Here a worker draws for each picture, seeded by
(seed, epoch, index) as ever, and the device applies: crop and flip by one gather, and AutoAugment by groups of
pictures that got the same operation at the same strength. The pixels are those of torchvision's tensor operations.
"""

# B pictures in a batch, H x W pixels

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

from hf_vitgeo.data.images import resize
from hf_vitgeo.data.transforms import POLICIES

#: Uniform numbers a picture: row and column of the crop, flip, sub-policy, twice (whether, sign), place of the cutout.
N_DRAWS = 10
#: Policies that have a form by groups.
DEVICE_POLICIES = ("none", "autoaugment_cifar10", "autoaugment_imagenet")


class RawPicture:
    """What a worker still does: resize, and draw the picture's random numbers.

    Args:
        size: height and width in pixels.
    """

    def __init__(self, size: tuple[int, int]):
        self.size = size

    def __call__(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """A PIL image of mode RGB -> `pixel_values` (3, H, W) uint8 and `draws` (N_DRAWS,) in [0, 1)."""
        pixels = torch.from_numpy(np.array(resize(image, *self.size)))
        # (H, W, 3) -> (3, H, W)
        return {"pixel_values": pixels.permute(2, 0, 1).contiguous(), "draws": torch.rand(N_DRAWS)}


class DeviceAugmentation:
    """Crop, flip, AutoAugment, normalisation and cutout of a batch.

    Args:
        mean: of the channels in [0, 1].
        std: likewise.
        padding: black pixels on each side before the crop; 0 leaves the crop out.
        horizontal_flip: whether to mirror every other picture, on average.
        policy: one of `DEVICE_POLICIES`.
        cutout: side in pixels of the square that is set to the mean colour; 0 for none.

    Raises:
        ValueError: for another policy.
    """

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        padding: int,
        horizontal_flip: bool,
        policy: str = "none",
        cutout: int = 0,
    ):
        if policy not in DEVICE_POLICIES:
            raise ValueError(f"policy is {policy!r}; on the device there are {', '.join(DEVICE_POLICIES)}")
        self.mean, self.std = (torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std))
        self.padding, self.horizontal_flip, self.cutout = padding, horizontal_flip, cutout
        self.policy: v2.AutoAugment | None = POLICIES[policy]()

    def __call__(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Augment a batch.

        Args:
            pixels: (B, 3, H, W) uint8, on the device.
            draws: (B, N_DRAWS) in [0, 1), in main memory, so that nothing waits for the device.

        Returns:
            (B, 3, H, W) float32, normalised.
        """
        pixels = self._crop_and_flip(pixels, draws)
        if self.policy is not None:
            pixels = self._apply_policy(pixels, draws[:, 3:8])
        result = (pixels.float() / 255 - self.mean.to(pixels.device)) / self.std.to(pixels.device)
        return self._cut_out(result, draws[:, 8:]) if self.cutout else result

    def _crop_and_flip(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        height, width = pixels.shape[-2:]
        room = 2 * self.padding + 1
        top, left = (draws[:, :2] * room).long().unbind(1)
        rows = top[:, None] + torch.arange(height)  # (B, H)
        columns = left[:, None] + torch.arange(width)  # (B, W)
        if self.horizontal_flip:
            columns = torch.where(draws[:, 2:3] < 0.5, columns.flip(1), columns)
        elif not self.padding:
            return pixels
        rows, columns = rows.to(pixels.device), columns.to(pixels.device)
        padded = torch.nn.functional.pad(pixels, [self.padding] * 4)
        batch = torch.arange(len(pixels), device=pixels.device)
        # (B, H, W, 3) -> (B, 3, H, W)
        found = padded[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return found.permute(0, 3, 1, 2).contiguous()

    def _apply_policy(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Both operations of each picture's sub-policy; (B, 5) draws choose it and, twice, whether and which sign."""
        policy: Any = self.policy
        chosen = (draws[:, 0] * len(policy._policies)).long().tolist()
        for turn in range(2):
            groups: dict[tuple[str, float], list[int]] = {}
            for index, (whether, sign) in enumerate(draws[:, 1 + 2 * turn : 3 + 2 * turn].tolist()):
                name, probability, level = policy._policies[chosen[index]][turn]
                if whether <= probability:
                    groups.setdefault((name, self._magnitude(name, level, sign, pixels)), []).append(index)
            result = pixels.clone()
            for (name, magnitude), members in groups.items():
                where = torch.tensor(members, device=pixels.device)
                result[where] = policy._apply_image_or_video_transform(
                    pixels[where], name, magnitude, policy.interpolation, policy._fill
                )
            pixels = result
        return pixels

    def _magnitude(self, name: str, level: int | None, sign: float, pixels: torch.Tensor) -> float:
        policy: Any = self.policy
        levels, signed = policy._AUGMENTATION_SPACE[name]
        magnitudes = levels(10, *pixels.shape[-2:])
        if magnitudes is None:
            return 0.0
        return float(magnitudes[level]) * (-1 if signed and sign <= 0.5 else 1)

    def _cut_out(self, pixels: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Set a clipped square around a uniform centre to 0, the mean colour; draws are (B, 2)."""
        inside = []
        for axis, side in enumerate(pixels.shape[-2:]):
            start = (draws[:, axis] * side).long() - self.cutout // 2
            place = torch.arange(side) - start[:, None]  # (B, side)
            inside.append(((place >= 0) & (place < self.cutout)).to(pixels.device))
        return pixels.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], 0)
