"""Where the blocks, the patch tokens and the positions are in a ViT, so that the recorder need not know its family."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Adapter:
    """What the recorder must know of one model.

    Attributes:
        blocks: the blocks in order; each returns the residual stream.
        attentions: the attention module of each block. Its first argument is the normalised tokens, its result
            (output, weights).
        final_norm: what follows the last block.
        patch_embeddings: the module that returns the patch tokens (B, N, D) before any position is added.
        num_prefix_tokens: tokens before the patches.
        patch_size: (height, width) of a patch in pixels.
        takes_geometry: whether `forward` itself takes `token_permutation` and `position_scale`.
    """

    blocks: tuple[nn.Module, ...]
    attentions: tuple[nn.Module, ...]
    final_norm: nn.Module
    patch_embeddings: nn.Module
    num_prefix_tokens: int
    patch_size: tuple[int, int]
    takes_geometry: bool = False

    def grid_size(self, height: int, width: int) -> tuple[int, int]:
        """Patches of a picture of that size in pixels, as (rows, columns)."""
        return height // self.patch_size[0], width // self.patch_size[1]


def _from(backbone: Any, blocks: Any, prefix: int, takes_geometry: bool = False) -> Adapter:
    patch = backbone.config.patch_size
    return Adapter(
        blocks=tuple(blocks),
        attentions=tuple(block.attention for block in blocks),
        final_norm=backbone.layernorm,
        patch_embeddings=backbone.embeddings.patch_embeddings,
        num_prefix_tokens=prefix,
        patch_size=(patch, patch) if isinstance(patch, int) else tuple(patch),
        takes_geometry=takes_geometry,
    )


def _vitgeo(backbone: Any) -> Adapter:
    return _from(backbone, backbone.layers, backbone.config.num_prefix_tokens, takes_geometry=True)


def _vit(backbone: Any) -> Adapter:
    return _from(backbone, backbone.layers, 1)


def _dinov2(backbone: Any) -> Adapter:
    return _from(backbone, backbone.encoder.layer, 1)


def _dinov2_with_registers(backbone: Any) -> Adapter:
    return _from(backbone, backbone.encoder.layer, 1 + backbone.config.num_register_tokens)


# By model_type. A checkpoint loaded with trust_remote_code has classes of its own, so types are compared by name.
_FAMILIES: dict[str, Callable[[Any], Adapter]] = {
    "vitgeo": _vitgeo,
    "vit": _vit,
    "dinov2": _dinov2,
    "dinov2_with_registers": _dinov2_with_registers,
}


def adapter_for(model: Any) -> Adapter:
    """Find the parts of a model.

    Args:
        model: a transformers model of a supported family, with or without a head.

    Returns:
        Its adapter.

    Raises:
        ValueError: for another family; it names the type and the supported ones.
    """
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type not in _FAMILIES:
        raise ValueError(
            f"no adapter for model_type {model_type!r} ({type(model).__name__}); supported are {', '.join(_FAMILIES)}"
        )
    return _FAMILIES[model_type](model.base_model)
