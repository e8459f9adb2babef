"""What a frozen backbone says of each picture, computed once and kept in a file that is mapped into memory."""

# B pictures in a batch, T tokens, D width

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_vitgeo.analysis.adapters import adapter_for
from hf_vitgeo.analysis.recorder import evaluating


def pool(model: Any, tokens: torch.Tensor, num_prefix_tokens: int) -> torch.Tensor:
    """One vector for each picture, of the kind that the model was trained to give.

    Args:
        model: a ViT.
        tokens: (B, T, D), normalised.
        num_prefix_tokens: [CLS] and registers.

    Returns:
        (B, D): [CLS], or the mean patch token where the model's own output is that.
    """
    if getattr(model.config, "pooling", "cls") == "mean" or num_prefix_tokens == 0:
        return tokens[:, num_prefix_tokens:].mean(dim=1)
    return tokens[:, 0]


@torch.no_grad()
def image_features(
    model: Any,
    batches: Iterable[torch.Tensor],
    count: int,
    path: Path | None = None,
    num_blocks: int = 1,
    average_pool: bool = False,
    progress: Callable[[int], Any] = lambda pictures: None,
) -> np.ndarray:
    """[CLS] of the last blocks, each through the final LayerNorm, as DINO's linear probe takes it.

    Args:
        model: a ViT of a supported family (see `analysis.adapters`). It is evaluated, and left as it was.
        batches: pixel values (B, C, height, width).
        count: pictures in all batches.
        path: file to write; None to keep the features in main memory.
        num_blocks: how many of the last blocks, the last one at the end.
        average_pool: whether the mean patch token of the last block follows (DINO: for ViT-B).
        progress: called with the number of pictures after each batch.

    Returns:
        (count, (num_blocks + average_pool) D) float32; with a path, mapped into memory for reading.

    Raises:
        ValueError: for an unsupported model, more blocks than it has, features that are not finite, or batches that
            hold another number of pictures.
    """
    adapter = adapter_for(model)
    if not 1 <= num_blocks <= len(adapter.blocks):
        raise ValueError(f"num_blocks is {num_blocks}; the model has {len(adapter.blocks)} blocks")
    parameter = next(model.parameters())
    kept: list[torch.Tensor] = []
    handles = [block.register_forward_hook(_keep(kept)) for block in adapter.blocks[-num_blocks:]]
    features, done, aside = None, 0, None if path is None else path.with_name(f".partial_{path.name}")
    try:
        with evaluating(model):
            for pixel_values in batches:
                kept.clear()
                model(pixel_values.to(parameter.device))
                normed = [adapter.final_norm(tokens) for tokens in kept]
                parts = [pool(model, tokens, adapter.num_prefix_tokens) for tokens in normed]
                if average_pool:
                    parts.append(normed[-1][:, adapter.num_prefix_tokens :].mean(dim=1))
                rows = torch.cat(parts, dim=1).float().cpu().numpy()
                if not np.isfinite(rows).all():
                    raise ValueError(f"features of pictures {done} to {done + len(rows) - 1} are not finite")
                if features is None:
                    features = _empty(aside, (count, rows.shape[1]))
                if done + len(rows) > count:
                    raise ValueError(f"there are more than the {count} pictures that were announced")
                features[done : done + len(rows)] = rows
                done += len(rows)
                progress(len(rows))
        if features is None or done != count:
            raise ValueError(f"there are {done} pictures; {count} were announced")
    except BaseException:
        if aside is not None:
            aside.unlink(missing_ok=True)
        raise
    finally:
        for handle in handles:
            handle.remove()
    if aside is None or path is None:
        return features
    features.flush()  # type: ignore[attr-defined]
    os.replace(aside, path)
    return np.load(path, mmap_mode="r")


def _keep(kept: list[torch.Tensor]) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)

    return hook


def _empty(path: Path | None, shape: tuple[int, int]) -> np.ndarray:
    if path is None:
        return np.empty(shape, np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


def fingerprint(model: Any, *facts: Any) -> str:
    """Twelve hexadecimal digits that stand for a model's weights and whatever else its features depend on.

    Args:
        model: a torch module.
        *facts: such as the data set, the split and the size of the pictures.

    Returns:
        Other weights or facts, other digits.
    """
    digest = hashlib.sha256(repr(facts).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        # bfloat16 has no counterpart in numpy; bytes do
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]
