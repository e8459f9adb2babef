"""The shifts of paper A, and DINO's solarisation: PIL image in, PIL image out. No torch until a picture is blurred.

A shift acts on the resized uint8 picture, before it becomes a tensor.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO

from PIL import Image, ImageOps

Shift = Callable[[Image.Image], Image.Image]

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
    # here, because a command line that names a shift is checked without torch
    from torchvision.transforms.v2.functional import gaussian_blur

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


def _check_quality(quality: int) -> None:
    if quality not in range(1, 101):
        raise ValueError(f"JPEG quality must be a whole number from 1 to 100, not {quality!r}")


def _check_blur(sigma: float, kernel_size: int) -> None:
    if not 0 < sigma < float("inf"):
        raise ValueError(f"sigma must be a positive number of pixels, not {sigma!r}")
    if kernel_size < 1 or kernel_size % 2 != 1:
        raise ValueError(f"kernel_size must be a positive odd number, not {kernel_size!r}")


@dataclass(frozen=True)
class Attack:
    """An attack by name.

    Attributes:
        kind: "fgsm" (one step along the gradient's sign) or "pgd" (many small ones, from a random start).
        eps: largest change of a channel, in 255ths.
        steps: of PGD; 1 for FGSM.
    """

    kind: str
    eps: int
    steps: int = 1


def parse_attack(name: str) -> Attack:
    """Read the name of an attack.

    Args:
        name: such as "fgsm_e4" (eps 4/255) or "pgd_e2_n10" (eps 2/255, 10 steps).

    Returns:
        The attack.

    Raises:
        ValueError: for any other name.
    """
    found = re.fullmatch(r"(?:(fgsm)_e(\d+)|(pgd)_e(\d+)_n(\d+))", name)
    if found is None or not 1 <= int(found[2] or found[4]) <= 255 or found[5] == "0":
        raise ValueError(
            f"--attacks has {name!r}; allowed are fgsm_e<eps> and pgd_e<eps>_n<steps>, eps from 1 to 255 in 255ths, "
            "such as fgsm_e4 and pgd_e2_n10"
        )
    return Attack(found[1] or found[3], int(found[2] or found[4]), int(found[5] or 1))
