"""The embedded data set: outdoor scenes that this module renders, with label, mask, depth and box, and no download.

Sky over ground with cloud-like noise, one main object and one or two distractors. The class is the surface of the main
object (local structure that a patch shows) together with the ninth of the picture in which it stands (layout). A
model without an encoding of position can read the surface, and something of the layout from the surroundings: sky is
above ground, and light comes from the left. A model with an encoding can read both.

Everything is drawn in units of the picture's side, so that a scene is the same at every size.
"""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

#: Surfaces of the main object, in the order of the class numbers.
SURFACES = ("horizontal stripes", "vertical stripes")
#: Ninths of the picture in which the main object's centre lies, row by row.
PLACES = tuple(f"{row} {column}" for row in ("upper", "middle", "lower") for column in ("left", "centre", "right"))
CLASS_NAMES = tuple(f"{surface}, {place}" for surface in SURFACES for place in PLACES)
MASK_NAMES = ("sky", "ground", "distractor", *SURFACES)
SPLITS = ("train", "validation", "test")
SIZES = (32, 224)

# Part of the cache key: raise it when a change of the code changes the pictures.
_VERSION = 1
_MODES = 12  # noise has this many cycles across the picture at most
_TEXTURE_PERIOD = 0.11  # of the side: 3.5 pixels at 32
_MAX_DEPTH = 20.0  # metres


def load(split: str = "train", size: int = 32, n: int | None = None, seed: int = 0) -> Any:
    """Load the scenes as a `datasets.Dataset`, rendered on first use and cached where `datasets` caches.

    Args:
        split: `train`, `validation` or `test`; the splits share no scene.
        size: side of the pictures in pixels, 32 to 224. The scenes are the same at every size.
        n: number of scenes: 10,000 for training and 1,000 else where it is None. Fewer are a prefix of more.
        seed: another seed gives other scenes.

    Returns:
        A data set with `image` (RGB), `label` (18 classes), `mask` (grey PNG of class numbers, see `MASK_NAMES`),
        `depth` (16-bit PNG in millimetres, 0 where there is none: the sky) and `bbox` ([x0, y0, x1, y1] of the main
        object in pixels, end exclusive).

    Raises:
        ValueError: for an unknown split, a size outside 32 to 224, or a number that is not positive.
    """
    import datasets

    count = check_request(split, size, n)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=list(CLASS_NAMES)),
            "mask": datasets.Image(),
            "depth": datasets.Image(),
            "bbox": datasets.Sequence(datasets.Value("int32"), length=4),
        }
    )
    arguments = {"split": split, "size": size, "n": count, "seed": seed, "version": _VERSION}
    return datasets.Dataset.from_generator(
        _rows, features=features, gen_kwargs=arguments, split=datasets.NamedSplit(split)
    )


def check_request(split: str, size: int, n: int | None) -> int:
    """Refuse what cannot be rendered; returns the number of scenes.

    Args:
        split: name of the split.
        size: side in pixels.
        n: number of scenes or None.

    Returns:
        `n`, or the split's own number.

    Raises:
        ValueError: as `load` says.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; the scenes have {', '.join(map(repr, SPLITS))}")
    if not SIZES[0] <= size <= SIZES[1]:
        raise ValueError(f"size is {size}; scenes are rendered at {SIZES[0]} to {SIZES[1]} pixels")
    count = (10_000 if split == "train" else 1_000) if n is None else n
    if count < 1:
        raise ValueError(f"n is {n}; it must be at least 1")
    return count


def render(split: str, size: int, indices: range, seed: int = 0) -> dict[str, np.ndarray]:
    """Render scenes as arrays.

    Args:
        split: name of the split.
        size: side in pixels, s.
        indices: which scenes; a scene depends on (seed, split, index) alone.
        seed: the data set's seed.

    Returns:
        `image` (B, s, s, 3) uint8, `label` (B,) int64, `mask` (B, s, s) uint8, `depth` (B, s, s) uint16 in
        millimetres, `bbox` (B, 4) int32.

    Raises:
        ValueError: as `load` says.
    """
    check_request(split, size, len(indices))
    drawn = [np.random.default_rng((seed, SPLITS.index(split), index)) for index in indices]
    numbers = np.stack([rng.random(64) for rng in drawn])
    waves = np.stack([rng.standard_normal((3, 2, 2 * _MODES, _MODES)) for rng in drawn])
    label = np.array([rng.integers(len(CLASS_NAMES)) for rng in drawn])
    return _Painter(size, numbers, waves, label).paint()


def _rows(split: str, size: int, n: int, seed: int, version: int) -> Iterator[dict[str, Any]]:
    """The scenes as encoded rows; `version` only tells cached files apart."""
    for start in range(0, n, 256):
        batch = render(split, size, range(start, min(start + 256, n)), seed)
        for image, label, mask, depth, bbox in zip(*batch.values(), strict=True):
            yield {
                "image": {"bytes": _png(image), "path": None},
                "label": int(label),
                "mask": {"bytes": _png(mask), "path": None},
                "depth": {"bytes": _png(depth), "path": None},
                "bbox": bbox.tolist(),
            }


def _png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


class _Painter:
    """Draws a batch of scenes back to front. Shapes: B scenes, s pixels a side."""

    def __init__(self, size: int, numbers: np.ndarray, waves: np.ndarray, label: np.ndarray):
        self.size, self.label = size, label
        self.surface, self.place = np.divmod(label, len(PLACES))
        self.numbers, self.taken = numbers.astype(np.float32), 0
        self.noise = _noise(waves, size)
        centre = (np.arange(size, dtype=np.float32) + 0.5) / size
        self.x, self.y = centre[None, None, :], centre[None, :, None]

    def uniform(self, low: float, high: float, count: int = 1) -> np.ndarray:
        """The next `count` numbers of every scene in [low, high): (B, count)."""
        start, self.taken = self.taken, self.taken + count
        return low + (high - low) * self.numbers[:, start : start + count]

    def paint(self) -> dict[str, np.ndarray]:
        """Background, distractors, main object, light."""
        self._background()
        self._distractors()
        cover = self._main_object()
        # Light falls from the left: what tells left from right without an encoding, faintly.
        light = 1 + self.uniform(0.02, 0.18)[:, :, None] * (0.5 - self.x)
        image = np.clip(self.image * light[..., None], 0, 1)
        return {
            "image": (image * 255 + 0.5).astype(np.uint8),
            "label": self.label.astype(np.int64),
            "mask": self.mask,
            "depth": (self.depth * 1000).astype(np.uint16),
            "bbox": _boxes(cover > 0.5),
        }

    def _background(self) -> None:
        """Sky that pales towards the horizon, ground that darkens towards the viewer, noise on both."""
        horizon = self.uniform(0.35, 0.65)[:, :, None] + 0.04 * self.noise[:, 2].mean(axis=1, keepdims=True)
        self.horizon = horizon
        sky_colour = np.array([0.25, 0.4, 0.55], np.float32) + self.uniform(-0.12, 0.12, 3)
        ground_colour = np.array([0.4, 0.4, 0.28], np.float32) + self.uniform(-0.15, 0.15, 3)
        height = np.broadcast_to(self.y, self.noise[:, 0].shape)
        sky = sky_colour[:, None, None] + (0.25 * height + 0.12 * self.noise[:, 0])[..., None]
        ground = ground_colour[:, None, None] + (0.1 - 0.2 * height + 0.1 * self.noise[:, 1])[..., None]
        below = np.clip((self.y - horizon) * self.size + 0.5, 0, 1)
        self.image = sky * (1 - below[..., None]) + ground * below[..., None]
        self.mask = (below > 0.5).astype(np.uint8)
        # A flat ground under an eye 1.5 m up with a field of view of one side a focal length: z = 1.5 / (y - horizon).
        distance = np.clip(1.5 / np.maximum(self.y - horizon, 1e-3), 0, _MAX_DEPTH)
        self.depth = np.where(below > 0.5, distance, 0).astype(np.float32)

    def _draw(self, cover: np.ndarray, colour: np.ndarray, mask: np.ndarray, depth: np.ndarray) -> None:
        """Put a shape (B, s, s) of a colour (B, s, s, 3) in front of what is there."""
        self.image = self.image * (1 - cover[..., None]) + colour * cover[..., None]
        inside = cover > 0.5
        self.mask = np.where(inside, mask[:, None, None], self.mask).astype(np.uint8)
        self.depth = np.where(inside, depth[:, None, None], self.depth)

    def _shape(self, cx: np.ndarray, cy: np.ndarray, rx: np.ndarray, ry: np.ndarray) -> np.ndarray:
        """Coverage (B, s, s) of a superellipse, from a diamond-like to a box-like one, with soft edges."""
        power = self.uniform(1.6, 6.0)[:, :, None]
        u = np.abs((self.x - cx[:, None, None]) / rx[:, None, None])
        v = np.abs((self.y - cy[:, None, None]) / ry[:, None, None])
        radius = (u**power + v**power) ** (1 / power)
        edge = np.minimum(rx, ry)[:, None, None] * self.size
        return np.clip((1 - radius) * edge + 0.5, 0, 1)

    def _distractors(self) -> None:
        """One or two small plain objects anywhere."""
        for number in range(2):
            cx, cy, rx, ry = (
                self.uniform(low, high)[:, 0] for low, high in ((0.1, 0.9), (0.1, 0.9), (0.05, 0.1), (0.05, 0.1))
            )
            colour = self.uniform(0.1, 0.9, 3)[:, None, None]
            present = (self.uniform(0, 1)[:, 0] < 0.6) | (number == 0)
            cover = self._shape(cx, cy, rx, ry) * present[:, None, None]
            depth = self.uniform(2.0, 12.0)[:, 0]
            self._draw(cover, np.broadcast_to(colour, self.image.shape), np.full(len(cx), 2), depth)

    def _main_object(self) -> np.ndarray:
        """The textured object, its centre in the ninth that the class names; returns its coverage."""
        row, column = np.divmod(self.place, 3)
        cx = (column + self.uniform(0.25, 0.75)[:, 0]) / 3
        cy = (row + self.uniform(0.25, 0.75)[:, 0]) / 3
        rx, ry = self.uniform(0.18, 0.27)[:, 0], self.uniform(0.18, 0.27)[:, 0]
        cover = self._shape(cx, cy, rx, ry)
        bright, dark = self.uniform(0.75, 1.0, 3), self.uniform(0.3, 0.6, 3)
        ink = self._texture()[..., None]
        colour = bright[:, None, None] * (1 - ink) + dark[:, None, None] * ink
        self._draw(cover, colour, 3 + self.surface, self.uniform(1.5, 6.0)[:, 0])
        return cover

    def _texture(self) -> np.ndarray:
        """Ink (B, s, s) in [0, 1]: stripes with a random phase."""
        phase = self.uniform(0, 1, 2)[:, :, None, None]
        period = _TEXTURE_PERIOD * (1 + 0.25 * self.uniform(-1, 1)[:, :, None])
        u = np.sin(2 * np.pi * (self.x / period + phase[:, 0]))
        v = np.sin(2 * np.pi * (self.y / period + phase[:, 1]))
        wave = np.where(self.surface[:, None, None] == 0, v, u)
        return np.clip(0.5 + 1.2 * wave, 0, 1)


def _noise(waves: np.ndarray, size: int) -> np.ndarray:
    """Smooth 1/f noise (B, 3, s, s) of unit variance from (B, 3, 2, 2M, M) normal coefficients, M the highest mode."""
    vertical = np.fft.fftfreq(2 * _MODES, 1 / (2 * _MODES))[:, None]
    frequency = np.hypot(vertical, np.arange(_MODES)[None])
    amplitude = np.where(frequency > 0, 1 / np.maximum(frequency, 1) ** 1.3, 0)
    spectrum = (waves[:, :, 0] + 1j * waves[:, :, 1]) * amplitude
    padded = np.zeros((*spectrum.shape[:2], size, size // 2 + 1), complex)
    padded[:, :, :_MODES, :_MODES] = spectrum[:, :, :_MODES]
    padded[:, :, -_MODES:, :_MODES] = spectrum[:, :, _MODES:]
    field = np.fft.irfft2(padded, s=(size, size)).astype(np.float32)
    return field / field.std(axis=(2, 3), keepdims=True)


def _boxes(inside: np.ndarray) -> np.ndarray:
    """(B, s, s) bool -> (B, 4) [x0, y0, x1, y1] of the true pixels, end exclusive."""
    columns, rows = np.asarray(inside.any(axis=1)), np.asarray(inside.any(axis=2))
    size = inside.shape[1]
    first = [lines.argmax(axis=1) for lines in (columns, rows)]
    last = [size - lines[:, ::-1].argmax(axis=1) for lines in (columns, rows)]
    return np.stack([*first, *last], axis=1).astype(np.int32)
