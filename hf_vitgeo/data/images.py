"""The one place where a picture is decoded: training, analysis and the Space all see the pixels that `load_rgb` gives.

Pillow alone would turn a 16-bit grey picture white, and would ignore the camera's orientation and the alpha channel,
each without a word. Nothing here imports torch.
"""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL import __version__ as PIL_VERSION

#: Pictures with more pixels are refused as decompression bombs. It is the count from which Pillow itself warns.
MAX_PIXELS = 89_478_485

#: What shows through transparent pixels: white, the paper that most pictures with an alpha channel are drawn for.
BACKGROUND = (255, 255, 255)


def load_rgb(source: Any) -> Image.Image:
    """Decode a picture of any kind into a fully loaded RGB image.

    The EXIF orientation is applied. Transparency (an alpha channel, a transparent palette entry or colour) is
    composited over `BACKGROUND`. 16-bit grey keeps its high byte, as Pillow does for 16-bit colour. Of an animated or
    multi-picture file (GIF, WebP, APNG, TIFF, MPO) the first frame is taken. ICC profiles are not applied: the stored
    numbers are what published models were trained on.

    Args:
        source: a path; the bytes of a picture file; a mapping `{"bytes": ..., "path": ...}` as `datasets` stores
            pictures, of which the path is opened only where there are no bytes; a PIL image, whose current frame is
            taken; or a uint8 array of shape (H, W, 3) or (H, W).

    Returns:
        A new PIL image of mode RGB. No file that was opened here stays open.

    Raises:
        ValueError: where the picture is empty, truncated, of no known format, larger than `MAX_PIXELS`, or of a kind
            that has no agreed 8-bit form (float, more than 16 bits). It names the file, where one is known, and the
            reason. `ImageFile.LOAD_TRUNCATED_IMAGES` is never set: a half-grey picture is not a picture.
        OSError: where the file cannot be opened at all (missing, a folder, no permission).
        TypeError: where `source` is none of the above.
    """
    # exif_transpose copies in any case, so that the result shares no pixels with a PIL source.
    return _decoded(source, lambda image: _to_rgb(ImageOps.exif_transpose(image)))


def open_stored(source: Any) -> Image.Image:
    """Decode a picture without changing a number of it: masks and depth maps, whose numbers are no colours.

    Args:
        source: as for `load_rgb`, but for arrays.

    Returns:
        A loaded PIL image in the mode of the file.

    Raises:
        ValueError: where the picture is empty, truncated, of no known format, or larger than `MAX_PIXELS`.
        OSError: where the file cannot be opened at all.
        TypeError: where `source` is none of what is allowed.
    """
    return _decoded(source, lambda image: image)


def decode_row(cell: Any, row: int | str, origin: str) -> Image.Image:
    """Decode the picture of one row.

    Args:
        cell: the encoded picture, as `datasets.Image(decode=False)` gives it, or None.
        row: its number.
        origin: what messages call the data.

    Returns:
        A PIL image of mode RGB.

    Raises:
        ValueError: for a picture that cannot be read; it names the row.
    """
    try:
        return load_rgb(cell or {})
    except (ValueError, OSError) as error:
        raise ValueError(f"row {row} of {origin}: {error}") from error


def resize(image: Image.Image, height: int, width: int) -> Image.Image:
    """Resize by PIL's bilinear filter with antialiasing; the aspect ratio is not kept.

    This is what paper A's code does before everything else (torchvision's `Resize((size, size))` on a PIL image).

    Args:
        image: a PIL image.
        height: wanted height in pixels.
        width: wanted width in pixels.

    Returns:
        The resized image, or `image` itself where it has that size already.
    """
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)


def _decoded(source: Any, finish: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Load, finish, and turn whatever goes wrong into one error that names the file."""
    name = _name(source)
    content = _content(source, name)
    try:
        image = Image.open(BytesIO(content)) if isinstance(content, bytes) else content
        if image.width * image.height > MAX_PIXELS:
            raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels")
        image.load()
        return finish(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"{name}: more than MAX_PIXELS = {MAX_PIXELS} pixels ({error})") from error
    except UnidentifiedImageError as error:
        raise ValueError(f"{name}: not a picture in any format that Pillow {PIL_VERSION} knows") from error
    # Broken files make Pillow's decoders raise OSError, SyntaxError, EOFError, struct.error, IndexError and more.
    except Exception as error:
        raise ValueError(f"{name}: cannot be decoded: {error}") from error


def _name(source: Any) -> str:
    """What to call the picture in a message: its path where one is known."""
    if isinstance(source, dict):
        source = source.get("path")
    elif isinstance(source, Image.Image):
        source = getattr(source, "filename", None)
    is_named = isinstance(source, str | os.PathLike) and os.fspath(source)
    return os.fsdecode(source) if is_named else "picture"


def _content(source: Any, name: str) -> bytes | Image.Image:
    """Reduce every kind of source to the bytes of a picture file or a PIL image."""
    if isinstance(source, dict):
        source = source.get("path") if source.get("bytes") is None else source["bytes"]
        if source is None:
            raise ValueError(f"{name}: there are neither bytes nor a path")
    if isinstance(source, str | os.PathLike):
        source = Path(source).read_bytes()
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, np.ndarray):
        is_picture = source.dtype == np.uint8 and (source.ndim == 2 or source.ndim == 3 and source.shape[2] == 3)
        if not is_picture or source.size == 0:
            raise ValueError(f"an array must be uint8 of (H, W, 3) or (H, W), not {source.dtype} of {source.shape}")
        return Image.fromarray(source)
    if not isinstance(source, bytes | bytearray | memoryview):
        raise TypeError(f"a picture is a path, bytes, dict, PIL image or array, not {type(source).__name__}")
    if len(source) == 0:
        raise ValueError(f"{name}: the file is empty (0 bytes)")
    return bytes(source)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert a loaded image of any mode; raise ValueError for a mode that has no agreed 8-bit form."""
    if image.mode == "F":
        raise ValueError("mode F holds floats, of which nobody says what is black and what is white")
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _high_byte(image)
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, (*BACKGROUND, 255))
        return Image.alpha_composite(background, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _high_byte(image: Image.Image) -> Image.Image:
    """16-bit grey to RGB by `value >> 8`: Pillow's own conversion clips at 255, which makes nearly all of it white."""
    values = np.asarray(image)
    # Pillow opens a 16-bit PGM, and older versions a 16-bit PNG, as mode I, which can hold 32 bits.
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"mode {image.mode} with values from {values.min()} to {values.max()}: more than 16 bits")
    grey = (values >> 8).astype(np.uint8)
    # A PNG may declare one grey value transparent.
    if isinstance(image.info.get("transparency"), int):
        grey[values == image.info["transparency"]] = BACKGROUND[0]
    return Image.fromarray(grey).convert("RGB")
