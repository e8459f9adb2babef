"""What happens to a decoded picture before the model: resize, shift, crop, flip, normalisation.

Every picture here is a PIL image of mode RGB, as `images.load_rgb` gives it, until the last step makes it a tensor.
The shifts are those of paper A: they act on the resized uint8 picture, before it becomes a tensor.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.v2.functional import gaussian_blur

from hf_vitgeo.data.images import resize

Shift = Callable[[Image.Image], Image.Image]
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

#: Paper A, section 5.4: JPEG of quality 5 and Gaussian blur of sigma 2.5. The kernel of 5 pixels stands only in its
#: code; it cuts the Gaussian off at 0.8 sigma, so this blur is much milder than its sigma says.
PAPER_SHIFTS = ("jpeg_q5", "blur_s2.5_k5")


def jpeg_shift(image: Image.Image, quality: int) -> Image.Image:
    """Compress a picture as JPEG in memory and decode it again.

    PIL's defaults hold, so chroma is subsampled 4:2:0 (paper A). Apply it after the resize: before it, the resize
    would average the artefacts away.

    Args:
        image: a PIL image of mode RGB.
        quality: PIL's JPEG quality, 1 (worst) to 100.

    Returns:
        A PIL image of the same size and mode.

    Raises:
        ValueError: for a quality that is not a whole number from 1 to 100.
    """
    _check_quality(quality)
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=int(quality))
    return Image.open(buffer).convert(image.mode)


def blur_shift(image: Image.Image, sigma: float, kernel_size: int) -> Image.Image:
    """Blur a picture by a Gaussian that is cut off at the kernel's edge; the border is reflected.

    This is torchvision's blur, not PIL's `GaussianBlur(radius)`, which has no cut-off and at the same sigma is about
    twice as strong as paper A's kernel of 5.

    Args:
        image: a PIL image of mode RGB, with sides longer than half the kernel.
        sigma: standard deviation in pixels.
        kernel_size: side of the square kernel in pixels, odd.

    Returns:
        A PIL image of the same size and mode.

    Raises:
        ValueError: for a sigma that is not positive, or a kernel size that is not a positive odd number.
    """
    _check_blur(sigma, kernel_size)
    return gaussian_blur(image, kernel_size=[kernel_size, kernel_size], sigma=[sigma, sigma])


def solarize(image: Image.Image, threshold: int) -> Image.Image:
    """Invert every value that reaches a threshold.

    Args:
        image: a PIL image of 8 bits a channel.
        threshold: on the picture's own scale, 0 (all values are inverted) to 256 (none is). DINO uses 128.

    Returns:
        A PIL image of the same size and mode.

    Raises:
        ValueError: for a threshold that is not a whole number from 0 to 256; one meant for pictures in 0..1 would
            invert nearly everything.
    """
    if threshold not in range(257):
        raise ValueError(f"threshold must be a whole number from 0 to 256, not {threshold!r}")
    return ImageOps.solarize(image, int(threshold))


def parse_shift(name: str) -> Shift:
    """Turn the name of a shift, as it stands in flags and results, into the function that applies it.

    Args:
        name: "jpeg_q<quality>" such as "jpeg_q5", or "blur_s<sigma>_k<kernel size>" such as "blur_s2.5_k5".

    Returns:
        A function from a PIL image to a PIL image; it can be pickled, so data loader workers may have it.

    Raises:
        ValueError: for any other name, and for numbers that `jpeg_shift` or `blur_shift` would refuse.
    """
    if match := re.fullmatch(r"jpeg_q(\d+)", name):
        quality = int(match[1])
        _check_quality(quality)
        return partial(jpeg_shift, quality=quality)
    if match := re.fullmatch(r"blur_s(\d+(?:\.\d+)?)_k(\d+)", name):
        sigma, kernel_size = float(match[1]), int(match[2])
        _check_blur(sigma, kernel_size)
        return partial(blur_shift, sigma=sigma, kernel_size=kernel_size)
    raise ValueError(
        f"unknown shift {name!r}: write jpeg_q<quality 1..100> or blur_s<sigma>_k<odd kernel size>, "
        f"for example {' or '.join(PAPER_SHIFTS)}"
    )


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


def train_transform(
    size: Size,
    mean: Sequence[float],
    std: Sequence[float],
    padding: int | None = None,
    horizontal_flip: bool = True,
) -> Callable[[Image.Image], Tensor]:
    """Build the baseline training pipeline of paper B: random crop of the padded picture, random flip, normalise.

    All randomness comes from torch's global generator, in a fixed number of draws for each picture: seed it before a
    picture and that picture's crop and flip are repeatable.

    Args:
        size: side of the square, or (height, width), in pixels. A picture of another size is resized first, without
            keeping its aspect ratio.
        mean: mean of each of the three channels on the scale 0 to 1.
        std: their standard deviation on the same scale.
        padding: black pixels added on each side before the crop; None takes an eighth of the shorter side (4 at 32,
            8 at 64, as is usual for CIFAR and Tiny-ImageNet).
        horizontal_flip: whether to mirror every other picture, on average.

    Returns:
        A function from a PIL image of mode RGB to a float32 tensor of shape (3, height, width).

    Raises:
        ValueError: as `eval_transform` does, and for a negative padding.
    """
    height, width = _height_width(size)
    padding = min(height, width) // 8 if padding is None else padding
    if padding < 0:
        raise ValueError(f"padding must not be negative, but is {padding}")
    statistics = _statistics(mean, std)
    return partial(
        _crop_and_flip, height=height, width=width, padding=padding, flip=horizontal_flip, statistics=statistics
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


def _crop_and_flip(
    image: Image.Image, height: int, width: int, padding: int, flip: bool, statistics: tuple[Tensor, Tensor]
) -> Tensor:
    """The transform that `train_transform` binds."""
    _check_rgb(image)
    # Views of one uint8 array cost next to nothing; v2's crop and flip take 30 to 75 microseconds each.
    canvas = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
    canvas[padding : padding + height, padding : padding + width] = np.asarray(resize(image, height, width))
    top, left = torch.randint(2 * padding + 1, (2,)).tolist()
    pixels = canvas[top : top + height, left : left + width]
    if flip and torch.randint(2, ()).item():
        pixels = pixels[:, ::-1]
    return _normalize(pixels, statistics)


def _normalize(pixels: np.ndarray, statistics: tuple[Tensor, Tensor]) -> Tensor:
    """Turn uint8 pixels (H, W, 3) into a normalised float32 tensor (3, H, W), by torchvision's own arithmetic."""
    mean, std = statistics
    floats = torch.from_numpy(np.array(pixels.transpose(2, 0, 1), np.float32, order="C"))
    return floats.div_(255).sub_(mean).div_(std)


def _check_rgb(image: Image.Image) -> None:
    if image.mode != "RGB":
        raise ValueError(f"a picture of mode {image.mode} was given where RGB is needed: decode it by load_rgb")


def _check_quality(quality: int) -> None:
    if quality not in range(1, 101):
        raise ValueError(f"JPEG quality must be a whole number from 1 to 100, not {quality!r}")


def _check_blur(sigma: float, kernel_size: int) -> None:
    if not 0 < sigma < float("inf"):
        raise ValueError(f"sigma must be a positive number of pixels, not {sigma!r}")
    if kernel_size < 1 or kernel_size % 2 != 1:
        raise ValueError(f"kernel_size must be a positive odd number, not {kernel_size!r}")


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
