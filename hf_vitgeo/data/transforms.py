"""What happens to a decoded picture before the model: resize, shift, crop, flip, policy, cutout, normalisation.

Every picture here is a PIL image of mode RGB, as `images.load_rgb` gives it, until the last step makes it a tensor.
The shifts are those of paper A: they act on the resized uint8 picture, before it becomes a tensor.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from hf_vitgeo.data.images import resize
from hf_vitgeo.data.shifts import PAPER_SHIFTS, Shift, blur_shift, jpeg_shift, parse_shift, solarize

__all__ = [
    "CROPS",
    "NORMALIZATION",
    "PAPER_SHIFTS",
    "POLICIES",
    "blur_shift",
    "eval_transform",
    "jpeg_shift",
    "parse_shift",
    "solarize",
    "train_transform",
]

Size = int | tuple[int, int]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
#: Mean and standard deviation of the three channels on the scale 0 to 1, by name. "imagenet" is what paper A and DINO
#: use; "half" maps to -1..1 and favours no data set (the original ViT, and our choice for CIFAR).
#: "scenes" is measured on the 10,000 training scenes at 32 pixels.
NORMALIZATION = {
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "scenes": ((0.387, 0.448, 0.463), (0.193, 0.184, 0.242)),
}


#: How training pictures are cut.
CROPS = ("pad", "resized", "none")
#: What is done to a training picture after crop and flip, by name. Each draws anew for each picture.
POLICIES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "autoaugment_cifar10": lambda: v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10),
    "autoaugment_imagenet": lambda: v2.AutoAugment(v2.AutoAugmentPolicy.IMAGENET),
    "color_jitter": lambda: v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
}


def eval_transform(
    size: Size, mean: Sequence[float], std: Sequence[float], shift: Shift | None = None
) -> Callable[[Image.Image], Tensor]:
    """Build paper A's evaluation pipeline: resize, shift, scale to 0..1, normalise.

    Args:
        size: side of the square, or (height, width), in pixels. The aspect ratio of the picture is not kept, and
            nothing is cropped.
        mean: mean of each of the three channels on the scale 0 to 1.
        std: their standard deviation on the same scale.
        shift: a function from the resized PIL image to a PIL image of the same size (see `parse_shift`), or None.

    Returns:
        A function from a PIL image of mode RGB to a float32 tensor of shape (3, height, width).

    Raises:
        ValueError: for a size that is not positive, or a mean or standard deviation that is not three numbers on the
            scale 0 to 1 (a zero standard deviation included).
    """
    height, width = _height_width(size)
    return partial(_evaluate, height=height, width=width, shift=shift, statistics=_statistics(mean, std))


def usual_padding(size: tuple[int, int]) -> int:
    """Pixels around a picture before its crop: an eighth of the shorter side (4 at 32, 8 at 64).

    Args:
        size: height and width in pixels.

    Returns:
        Pixels on each side.
    """
    return min(size) // 8


def train_transform(
    size: Size,
    mean: Sequence[float],
    std: Sequence[float],
    crop: str = "pad",
    padding: int | None = None,
    horizontal_flip: bool = True,
    policy: str = "none",
    cutout: int = 0,
) -> Callable[[Image.Image], Tensor]:
    """Build a training pipeline: crop, flip, policy, normalise, cutout. The defaults are paper B's baseline.

    All randomness comes from torch's global generator: seed it before a picture, and what happens to that picture is
    repeatable. Each call draws anew, so pictures of a batch differ.

    Args:
        size: side of the square, or (height, width), in pixels.
        mean: mean of each of the three channels on the scale 0 to 1.
        std: their standard deviation on the same scale.
        crop: "pad" (a window of the padded picture, paper B), "resized" (a window of 8 to 100 % of the area with
            aspect 3:4 to 4:3, resized; our choice for paper A, which names none) or "none". A picture of another size
            is resized first, without keeping its aspect ratio, but for "resized".
        padding: black pixels on each side for "pad"; None takes an eighth of the shorter side (4 at 32, 8 at 64).
        horizontal_flip: whether to mirror every other picture, on average.
        policy: one of `POLICIES`, applied after crop and flip to the 8-bit picture: "none", "autoaugment_cifar10"
            (paper B on CIFAR-10 and CIFAR-100), "autoaugment_imagenet", or "color_jitter" (.4, .4, .4, .1; paper B on
            Tiny-ImageNet).
        cutout: side in pixels of a square that is set to the mean colour at a uniform place, clipped at the border
            (DeVries and Taylor, 2017); 0 for none.

    Returns:
        A function from a PIL image of mode RGB to a float32 tensor of shape (3, height, width).

    Raises:
        ValueError: as `eval_transform` does, for an unknown crop or policy, and for a negative padding or cutout.
    """
    height, width = _height_width(size)
    if crop not in CROPS:
        raise ValueError(f"crop is {crop!r}; allowed are {', '.join(CROPS)}")
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; allowed are {', '.join(POLICIES)}")
    padding = usual_padding((height, width)) if padding is None else padding
    for name, value in (("padding", padding), ("cutout", cutout)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, but is {value}")
    return partial(
        _augment,
        size=(height, width),
        window=v2.RandomResizedCrop((height, width)) if crop == "resized" else None,
        padding=padding if crop == "pad" else 0,
        flip=horizontal_flip,
        policy=POLICIES[policy](),
        cutout=cutout,
        statistics=_statistics(mean, std),
    )


def _evaluate(
    image: Image.Image, height: int, width: int, shift: Shift | None, statistics: tuple[Tensor, Tensor]
) -> Tensor:
    """The transform that `eval_transform` binds."""
    _check_rgb(image)
    image = resize(image, height, width)
    if shift is not None:
        image = shift(image)
    return _normalize(np.asarray(image), statistics)


def _augment(
    image: Image.Image,
    size: tuple[int, int],
    window: v2.RandomResizedCrop | None,
    padding: int,
    flip: bool,
    policy: Callable[[Image.Image], Image.Image] | None,
    cutout: int,
    statistics: tuple[Tensor, Tensor],
) -> Tensor:
    """The transform that `train_transform` binds."""
    _check_rgb(image)
    height, width = size
    pixels = np.asarray(resize(image, height, width) if window is None else window(image))
    if padding:
        # Views of one uint8 array cost next to nothing; v2's crop and flip take 30 to 75 microseconds each.
        canvas = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
        canvas[padding : padding + height, padding : padding + width] = pixels
        top, left = torch.randint(2 * padding + 1, (2,)).tolist()
        pixels = canvas[top : top + height, left : left + width]
    if flip and torch.randint(2, ()).item():
        pixels = pixels[:, ::-1]
    if policy is not None:
        pixels = np.asarray(policy(Image.fromarray(np.ascontiguousarray(pixels))))
    result = _normalize(pixels, statistics)
    if cutout:
        rows, columns = (_span(torch.randint(side, ()).item(), cutout, side) for side in size)
        result[:, rows, columns] = 0  # the mean colour, after normalisation
    return result


def _span(centre: int | float, length: int, side: int) -> slice:
    """`length` pixels around a centre, clipped at the border."""
    start = int(centre) - length // 2
    return slice(max(start, 0), min(start + length, side))


def _normalize(pixels: np.ndarray, statistics: tuple[Tensor, Tensor]) -> Tensor:
    """Turn uint8 pixels (H, W, 3) into a normalised float32 tensor (3, H, W), by torchvision's own arithmetic."""
    mean, std = statistics
    floats = torch.from_numpy(np.array(pixels.transpose(2, 0, 1), np.float32, order="C"))
    return floats.div_(255).sub_(mean).div_(std)


def _check_rgb(image: Image.Image) -> None:
    if image.mode != "RGB":
        raise ValueError(f"a picture of mode {image.mode} was given where RGB is needed: decode it by load_rgb")


def _height_width(size: Size) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size must be positive, not {size!r}")
    return height, width


def _statistics(mean: Sequence[float], std: Sequence[float]) -> tuple[Tensor, Tensor]:
    if len(mean) != 3 or not all(0 <= value <= 1 for value in mean):
        raise ValueError(f"mean must be three numbers from 0 to 1, not {mean!r}")
    if len(std) != 3 or not all(0 < value <= 1 for value in std):
        raise ValueError(f"std must be three numbers above 0 and up to 1, not {std!r}")
    return torch.tensor(mean, dtype=torch.float32).view(3, 1, 1), torch.tensor(std, dtype=torch.float32).view(3, 1, 1)
