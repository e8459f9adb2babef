"""One pass over a ViT that keeps only sums: token similarity of every layer, and the statistics of every head.

Nothing is collected: the attention map of one layer and one batch exists while its hook runs. Hooks, kernel and
training flags are as before when the pass ends, however it ends.
"""

# B pictures in a batch, N patches, T = prefix + N tokens, D width, H heads, L blocks

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from hf_vitgeo.analysis.adapters import Adapter, adapter_for
from hf_vitgeo.metrics.mad.pure import attention_rows
from hf_vitgeo.metrics.ssdt.pure import ssdt, token_similarity


@torch.no_grad()
def record(
    model: nn.Module,
    batches: Iterable[torch.Tensor],
    token_permutation: torch.Tensor | None = None,
    position_scale: float | None = None,
    attentions: bool = True,
    per_image: bool = True,
    num_layers: int | None = None,
) -> dict[str, Any]:
    """Run pictures through a model and measure its spatial structure and its heads.

    SSDT (paper A prints SSDC) is measured on the input of each attention module, after its LayerNorm: cosine
    similarities are averaged over all pictures first, then correlated once. The raw output of the last block is layer
    L. The result does not depend on the batch size.

    Args:
        model: a ViT of a supported family (see `adapters`). It is evaluated, and left as it was.
        batches: pixel values (B, C, height, width), all of one size.
        token_permutation: (N,) permutation of the patch tokens, shared by all pictures (RPI).
        position_scale: paper A's alpha for this pass; ViTGeo models only.
        attentions: whether to record the heads. Their maps need the eager kernel, which is slower.
        per_image: whether to record SSDT of each picture beside SSDT of the mean.
        num_layers: stop after this many blocks, when only the first layers are wanted.

    Returns:
        `ssdt` (L + 1,), `similarity` (L + 1, N, N), `grid_size`, `n_images`; with `per_image`, `ssdt_per_image`
        (images, L + 1); with `attentions`, each of shape (L, H): `mean_attention_distance` and its variants
        `_patches`, `_unnormalized`, `_no_self`, `attention_entropy`, `attention_support`, `patch_mass`, and
        `dropped_row_share`, the share of queries without patch mass. With `num_layers` K, the layers are 0 ... K.

    Raises:
        ValueError: without pictures, for pictures of different sizes, an unsupported model or impossible arguments.
        RuntimeError: when an attention module forms no weights.
    """
    adapter = adapter_for(model)
    sums = _Sums(adapter, attentions, per_image, num_layers)
    arguments = _geometry_arguments(adapter, token_permutation, position_scale)
    device = next(model.parameters()).device
    with evaluating(model, eager=attentions), _hooked(sums, adapter, token_permutation):
        for pixel_values in batches:
            sums.start_batch(pixel_values)
            try:
                model(pixel_values.to(device), **arguments)
            except _Enough:
                pass
    return sums.result()


def _geometry_arguments(adapter: Adapter, token_permutation: Any, position_scale: float | None) -> dict[str, Any]:
    if adapter.takes_geometry:
        return {"token_permutation": token_permutation, "position_scale": position_scale}
    if position_scale is not None:
        raise ValueError(f"position_scale is {position_scale}; only ViTGeo models take an alpha for one pass")
    return {}


class _Enough(Exception):
    """Ends a forward pass whose later layers nobody asked for."""


class _Sums:
    """Running sums over batches, filled by hooks."""

    def __init__(self, adapter: Adapter, attentions: bool, per_image: bool, num_layers: int | None):
        self.adapter, self.attentions, self.per_image = adapter, attentions, per_image
        self.depth = len(adapter.blocks) if num_layers is None else num_layers
        if not 1 <= self.depth <= len(adapter.blocks):
            raise ValueError(f"num_layers is {num_layers}; the model has {len(adapter.blocks)} blocks")
        self.similarity: list[Any] = [0.0] * (self.depth + 1)
        self.images_ssdt: list[list[np.ndarray]] = [[] for _ in range(self.depth + 1)]
        self.rows: list[dict[str, Any]] = [{} for _ in range(self.depth)]
        self.grid_size: tuple[int, int] | None = None
        self.n_images = 0

    def start_batch(self, pixel_values: torch.Tensor) -> None:
        grid = self.adapter.grid_size(*pixel_values.shape[-2:])
        if self.grid_size not in (None, grid):
            raise ValueError(f"pictures with grids {self.grid_size} and {grid} cannot be averaged; use one size")
        self.grid_size = grid
        self.n_images += len(pixel_values)

    def add_tokens(self, layer: int, tokens: torch.Tensor) -> None:
        """Tokens (B, T, D) of one layer."""
        assert self.grid_size is not None
        # (B, T, D) -> (B, N, N)
        similarity = token_similarity(tokens[:, self.adapter.num_prefix_tokens :])
        # In float64 and one picture after the other, so that the batch size does not matter.
        self.similarity[layer] = self.similarity[layer] + similarity.cpu().double().sum(dim=0)
        if self.per_image:
            self.images_ssdt[layer].append(np.asarray(ssdt(similarity, self.grid_size).cpu(), dtype=np.float64))

    def add_attentions(self, layer: int, weights: torch.Tensor | None) -> None:
        """Attention weights (B, H, T, T) of one layer."""
        if weights is None:
            raise RuntimeError(
                f"the attention module of layer {layer} formed no weights; its kernel must be 'eager' "
                "(model.set_attn_implementation)"
            )
        assert self.grid_size is not None
        rows = attention_rows(weights, self.grid_size, self.adapter.num_prefix_tokens)
        sums = self.rows[layer]
        # NaN here alone means weights that are not finite; elsewhere it can mean a query without patch mass.
        broken = torch.isnan(rows["patch_mass"])
        for name, values in rows.items():
            # (B, H, N) -> (H,): sums and counts, because a row without patch mass leaves some measures
            kept = torch.isfinite(values)
            total = torch.where(kept | broken, values, 0).cpu().double().sum(dim=(0, 2))
            count = kept.sum(dim=(0, 2)).cpu()
            old_total, old_count = sums.get(name, (0, 0))
            sums[name] = (old_total + total, old_count + count)

    def result(self) -> dict[str, Any]:
        """Means over everything that was added."""
        if self.n_images == 0 or self.grid_size is None:
            raise ValueError("no pictures: the batches were empty")
        similarity = np.stack([(layer / self.n_images).numpy() for layer in self.similarity])
        result: dict[str, Any] = {
            "similarity": similarity,
            "ssdt": np.asarray(ssdt(similarity, self.grid_size)),
            "grid_size": self.grid_size,
            "n_images": self.n_images,
        }
        if self.per_image:
            result["ssdt_per_image"] = np.stack([np.concatenate(layer) for layer in self.images_ssdt], axis=1)
        if self.attentions:
            for name in self.rows[0]:
                pairs = [layer[name] for layer in self.rows]
                result[name] = np.stack([(total / count).numpy() for total, count in pairs])
            queries = self.n_images * self.grid_size[0] * self.grid_size[1]
            kept = np.stack([layer["attention_entropy"][1].numpy() for layer in self.rows])
            result["dropped_row_share"] = 1 - kept / queries
        return result


@contextmanager
def _hooked(sums: _Sums, adapter: Adapter, token_permutation: torch.Tensor | None) -> Iterator[None]:
    """Hooks of one pass; all of them are gone afterwards, and those of the user are still there."""
    handles = []

    def permute(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output[:, token_permutation]

    try:
        if token_permutation is not None and not adapter.takes_geometry:
            handles.append(adapter.patch_embeddings.register_forward_hook(permute))
        for layer, attention in enumerate(adapter.attentions[: sums.depth]):
            handles.extend(_attention_hooks(sums, layer, attention))
        handles.append(_last_hook(sums, adapter))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tokens(arguments: Any, keywords: dict[str, Any]) -> torch.Tensor:
    """What enters an attention module (B, T, D): families pass it by place or by name."""
    return arguments[0] if arguments else keywords["hidden_states"]


def _attention_hooks(sums: _Sums, layer: int, attention: nn.Module) -> list[Any]:
    def before(module: nn.Module, arguments: Any, keywords: dict[str, Any]) -> None:
        sums.add_tokens(layer, _tokens(arguments, keywords))

    def after(module: nn.Module, arguments: Any, output: Any) -> None:
        sums.add_attentions(layer, output[1])

    handles = [attention.register_forward_pre_hook(before, with_kwargs=True)]
    return handles + [attention.register_forward_hook(after)] if sums.attentions else handles


def _last_hook(sums: _Sums, adapter: Adapter) -> Any:
    """Layer L: the raw output of the last block; with fewer layers, the input of the next attention."""
    if sums.depth == len(adapter.blocks):

        def after(module: nn.Module, arguments: Any, output: Any) -> None:
            sums.add_tokens(sums.depth, output[0] if isinstance(output, tuple) else output)

        return adapter.blocks[-1].register_forward_hook(after)

    def before(module: nn.Module, arguments: Any, keywords: dict[str, Any]) -> None:
        sums.add_tokens(sums.depth, _tokens(arguments, keywords))
        raise _Enough

    return adapter.attentions[sums.depth].register_forward_pre_hook(before, with_kwargs=True)


@contextmanager
def evaluating(model: Any, eager: bool = False) -> Iterator[None]:
    """Evaluation mode and, for attention maps, the eager kernel; afterwards every flag is as it was.

    Args:
        model: a transformers model.
        eager: whether the pass needs attention maps. entmax has its own dense kernel and is not switched.
    """
    flags = [(module, module.training) for module in model.modules()]
    kernel = model.config._attn_implementation
    switch = eager and kernel != "eager" and getattr(model.config, "attention_probs_function", "softmax") == "softmax"
    try:
        model.eval()
        if switch:
            model.set_attn_implementation("eager")
        yield
    finally:
        if switch:
            model.set_attn_implementation(kernel)
        for module, training in flags:
            module.training = training
