"""Patch maps of frozen backbones over windows of a picture: computed once, for any layers, in one file on disk."""

# W windows, L layers, T tokens, N = rows x columns patches, D width, h x w pixels of a window

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.adapters import adapter_for
from hf_vitgeo.analysis.recorder import evaluating
from hf_vitgeo.probing.features import pool

#: Bytes of one file of patch maps that are refused: what else is on the disk should have room too.
MAX_BYTES_ON_DISK = 20 * 2**30


def window_places(size: tuple[int, int], window: tuple[int, int], stride: tuple[int, int]) -> list[tuple[int, int]]:
    """Corners of windows that cover a picture; the last row and column end where the picture does.

    Args:
        size: height and width of the picture, at least those of a window.
        window: height and width of a window.
        stride: pixels from one window to the next.

    Returns:
        (top, left) of each.

    Raises:
        ValueError: for a picture smaller than a window, or a stride that leaves gaps.
    """
    if size[0] < window[0] or size[1] < window[1]:
        raise ValueError(f"a picture of {size} pixels is smaller than a window of {window}; enlarge it first")
    if not all(0 < step <= side for step, side in zip(stride, window, strict=True)):
        raise ValueError(f"stride is {stride}; allowed is from 1 to the side of a window, {window}")
    ends = [range(0, full - side, step) for full, side, step in zip(size, window, stride, strict=True)]
    places = [[*starts, full - side] for starts, full, side in zip(ends, size, window, strict=True)]
    return [(top, left) for top in places[0] for left in places[1]]


def stitch(scores: torch.Tensor, places: Sequence[tuple[int, int]], size: tuple[int, int]) -> torch.Tensor:
    """The mean of what overlapping windows say of each pixel.

    Args:
        scores: (windows, K, h, w).
        places: corners of each window.
        size: height and width of the picture.

    Returns:
        (K, height, width).
    """
    total = scores.new_zeros((scores.shape[1], *size))
    count = scores.new_zeros(size)
    height, width = scores.shape[-2:]
    for (top, left), window in zip(places, scores, strict=True):
        total[:, top : top + height, left : left + width] += window
        count[top : top + height, left : left + width] += 1
    return total / count


@dataclass(frozen=True)
class PatchMaps:
    """What a frozen backbone says of windows, layer by layer, each through the final LayerNorm.

    Attributes:
        patches: (W, L, N, D) float16, mapped from a file.
        pooled: (W, L, D) float16, [CLS] or what the model pools.
        grid_size: (rows, columns) of a window.
        layers: the number of each layer, 1 for the output of the first block.
    """

    patches: np.ndarray
    pooled: np.ndarray
    grid_size: tuple[int, int]
    layers: tuple[int, ...]

    def batch(self, rows: np.ndarray, layer: int, with_cls: bool) -> torch.Tensor:
        """Patch maps of some windows as a convolution takes them.

        Args:
            rows: numbers of the windows.
            layer: one of `layers`.
            with_cls: whether [CLS] is put behind every patch (2 D channels).

        Returns:
            (windows, D or 2 D, rows, columns) float32.
        """
        place = self.layers.index(layer)
        # (b, N, D) -> (b, D, rows, columns)
        maps = torch.from_numpy(self.patches[rows, place].astype(np.float32)).transpose(1, 2)
        maps = maps.unflatten(2, self.grid_size)
        if not with_cls:
            return maps
        cls = torch.from_numpy(self.pooled[rows, place].astype(np.float32))
        return torch.cat((maps, cls[:, :, None, None].expand(-1, -1, *self.grid_size)), dim=1)


@torch.no_grad()
def patch_maps(
    model: Any,
    batches: Iterable[torch.Tensor],
    count: int,
    folder: Path,
    layers: Sequence[int] | None = None,
    max_bytes: int = MAX_BYTES_ON_DISK,
    progress: Callable[[int], Any] = lambda windows: None,
) -> PatchMaps:
    """Run windows through a model and keep its patch tokens.

    Args:
        model: a ViT of a supported family. It is evaluated, and left as it was.
        batches: pixel values (B, C, h, w), all of one size; where it is not the model's, positions are interpolated.
        count: windows in all batches.
        folder: where the files are written.
        layers: numbers of the blocks, 1 to depth; the last one alone where it is None.
        max_bytes: the largest file that is allowed.
        progress: called with the number of windows after each batch.

    Returns:
        The maps: 2 W L (N + 1) D bytes on disk, and one batch in memory.

    Raises:
        ValueError: for a layer that there is not, a file that would be too large (it says how large), tokens that are
            not finite, or another number of windows.
    """
    adapter = adapter_for(model)
    depth = len(adapter.blocks)
    chosen = (depth,) if layers is None else tuple(layers)
    if not chosen or not all(1 <= layer <= depth for layer in chosen):
        raise ValueError(f"layers are {chosen}; the model has 1 to {depth}")
    device = next(model.parameters()).device
    kept: dict[int, torch.Tensor] = {}
    handles = [adapter.blocks[layer - 1].register_forward_hook(_into(kept, layer)) for layer in chosen]
    files: tuple[np.ndarray, np.ndarray] | None = None
    done, grid, limit = 0, (0, 0), float(np.finfo(np.float16).max)
    try:
        with evaluating(model):
            for pixel_values in batches:
                model(pixel_values.to(device), **_any_size(model, pixel_values))
                normed = [adapter.final_norm(kept[layer]) for layer in chosen]
                pooled = torch.stack([pool(model, tokens, adapter.num_prefix_tokens) for tokens in normed], dim=1)
                # L of (B, T, D) -> (B, L, N, D)
                patches = torch.stack([tokens[:, adapter.num_prefix_tokens :] for tokens in normed], dim=1)
                if not (patches.isfinite().all() and patches.abs().amax() <= limit):
                    raise ValueError(
                        f"tokens of windows {done} to {done + len(patches) - 1} are not finite in float16"
                    )
                if files is None:
                    grid = adapter.grid_size(*pixel_values.shape[-2:])
                    files = _files(folder, (count, *patches.shape[1:]), max_bytes)
                if done + len(patches) > count:
                    raise ValueError(f"there are more than the {count} windows that were announced")
                for file, values in zip(files, (patches, pooled), strict=True):
                    file[done : done + len(patches)] = values.cpu().numpy()
                done += len(patches)
                progress(len(patches))
    finally:
        for handle in handles:
            handle.remove()
    if files is None or done != count:
        raise ValueError(f"there are {done} windows; {count} were announced")
    return PatchMaps(*files, grid, chosen)


def _into(kept: dict[int, torch.Tensor], layer: int) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        kept[layer] = output[0] if isinstance(output, tuple) else output

    return hook


def _any_size(model: Any, pixel_values: torch.Tensor) -> dict[str, bool]:
    """Ask for interpolated positions where the window is not of the model's size, and the family wants to be asked."""
    size = model.config.image_size
    own = (size, size) if isinstance(size, int) else tuple(size)
    asks = model.config.model_type in ("vitgeo", "vit")
    return {"interpolate_pos_encoding": True} if asks and tuple(pixel_values.shape[-2:]) != own else {}


def _files(folder: Path, shape: tuple[int, ...], max_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    windows, layers, patches, width = shape
    needed = 2 * windows * layers * (patches + 1) * width
    if needed > max_bytes:
        raise ValueError(
            f"patch maps of {windows} windows, {layers} layers, {patches} patches of width {width} take "
            f"{needed / 2**30:.1f} GiB on disk; allowed are {max_bytes / 2**30:.1f} GiB: use fewer pictures or layers"
        )
    os.makedirs(folder, exist_ok=True)
    made = np.lib.format.open_memmap
    return (
        made(folder / "patches.npy", mode="w+", dtype=np.float16, shape=shape),
        made(folder / "pooled.npy", mode="w+", dtype=np.float16, shape=(windows, layers, width)),
    )
