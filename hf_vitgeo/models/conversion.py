"""Other people's weights in a ViTGeo model. Not imported by the modelling code, so it does not travel to the Hub."""

import os
from typing import Any

import torch

from .configuration_vitgeo import ViTGeoConfig
from .modeling_vitgeo import ViTGeoModel

# The same meaning in both configurations, by name.
_SHARED_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
    "layer_norm_eps",
    "image_size",
    "patch_size",
    "num_channels",
    "qkv_bias",
)


def from_vit(model_or_path: Any, **config_overrides: Any) -> ViTGeoModel:
    """A ViTGeo backbone with the weights of a transformers ViT; the same tokens come out.

    Args:
        model_or_path: a `ViTModel`, a ViT with a head, or the path or Hub id of one. A head and the pooler are left
            out: ViTGeo's `pooler_output` is the [CLS] token itself.
        **config_overrides: fields of `ViTGeoConfig` that differ, for instance `position_scale=0.4`. A change that asks
            for other parameters (registers, another encoding) is an error here: they would be initialised anew.

    Returns:
        The backbone, in the mode and dtype of the source.

    Raises:
        ValueError: for another kind of model, or when a parameter has no counterpart; it names them.
    """
    source = _load(model_or_path)
    if getattr(source.config, "model_type", None) != "vit":
        raise ValueError(
            f"cannot convert {type(source).__name__} (model_type {getattr(source.config, 'model_type', None)!r}); "
            "supported is transformers' ViT"
        )
    fields = {name: getattr(source.config, name) for name in _SHARED_FIELDS}
    fields["position_dropout_prob"] = source.config.hidden_dropout_prob
    model = ViTGeoModel(ViTGeoConfig(**{**fields, **config_overrides}))
    weights = source.base_model.state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler.")}
    kept.pop("embeddings.mask_token", None)  # only masked image modelling reads it
    wanted = model.state_dict()
    missing, unused = sorted(set(wanted) - set(kept)), sorted(set(kept) - set(wanted))
    wrong = [
        f"{name} {tuple(kept[name].shape)} for {tuple(wanted[name].shape)}"
        for name in sorted(set(kept) & set(wanted))
        if kept[name].shape != wanted[name].shape
    ]
    if missing or unused or wrong:
        raise ValueError(
            f"the weights do not fit: missing {missing}, without a place {unused}, of another shape {wrong}"
        )
    model = model.to(next(source.parameters()).dtype)
    model.load_state_dict(kept)
    return model.train(source.training)


def _load(model_or_path: Any) -> Any:
    if isinstance(model_or_path, str | os.PathLike):
        from transformers import AutoModel

        return AutoModel.from_pretrained(model_or_path)
    if not isinstance(model_or_path, torch.nn.Module) or not hasattr(model_or_path, "config"):
        raise ValueError(f"cannot convert {type(model_or_path).__name__}; give a transformers ViT, a path or a Hub id")
    return model_or_path
