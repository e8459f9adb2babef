"""ViTGeo: a Vision Transformer whose encoding of position, token order and attention function can be chosen.

Parameter names are those of transformers' ViT, so that its weights load (see `conversion.py`). This file and the
siblings that it imports are what a checkpoint carries to the Hub.
"""

# B batch, N = h * w patches, P prefix tokens ([CLS] and registers), T = P + N tokens, D width, K classes

import os
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import ViTGeoAttention, check_attention_kernel
from .configuration_vitgeo import ViTGeoConfig, check_position_scale
from .embeddings import ViTGeoEmbeddings
from .layers import ViTGeoLayer, ViTGeoLayerNorm, ViTGeoLayerScale
from .position_encoding import rope_tables


class ViTGeoPreTrainedModel(PreTrainedModel):
    """What ViTGeo models share: initialisation, kernels, and how they are saved."""

    config: ViTGeoConfig
    config_class = ViTGeoConfig
    base_model_prefix = "vitgeo"
    main_input_name = "pixel_values"
    input_modalities = ["image"]
    supports_gradient_checkpointing = True
    _no_split_modules = ["ViTGeoEmbeddings", "ViTGeoLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": ViTGeoLayer, "attentions": ViTGeoAttention}
    _input_embed_layer = "patch_embeddings"

    def __init__(self, config: ViTGeoConfig, *args: Any, **kwargs: Any):
        # A keyword of from_pretrained is set after the configuration was checked.
        config.validate()
        if config.attention_probs_function != "softmax" and config._attn_implementation is None:
            # transformers would resolve a missing kernel to sdpa, which computes softmax
            config._attn_implementation = "eager"
        super().__init__(config, *args, **kwargs)
        check_attention_kernel(config)

    def _init_weights(self, module: nn.Module) -> None:
        """Truncated normal weights; the position table and [CLS] with the standard deviations of the configuration."""
        super()._init_weights(module)
        config = self.config
        if isinstance(module, ViTGeoEmbeddings):
            for parameter, std in (
                (module.cls_token, config.cls_init_std),
                (module.register_tokens, config.initializer_range),
                (module.position_embeddings, config.position_init_std),
                (module.cls_position, config.position_init_std),
            ):
                if parameter is not None:
                    init.normal_(parameter, mean=0.0, std=std)
        elif isinstance(module, ViTGeoLayerScale):
            init.constant_(module.factor, float(config.layerscale_value or 0.0))
        elif isinstance(module, nn.Linear | nn.Conv2d):
            init.trunc_normal_(module.weight, mean=0.0, std=config.initializer_range)

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """As in transformers; the configuration names a class for every Auto class, not only for the one saved."""
        self.config.auto_map = {
            **(getattr(self.config, "auto_map", None) or {}),
            "AutoConfig": "configuration_vitgeo.ViTGeoConfig",
            "AutoModel": "modeling_vitgeo.ViTGeoModel",
            "AutoModelForImageClassification": "modeling_vitgeo.ViTGeoForImageClassification",
        }
        super().save_pretrained(save_directory, *args, **kwargs)


class ViTGeoModel(ViTGeoPreTrainedModel):
    """The backbone: pictures in, tokens out.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: ViTGeoConfig):
        super().__init__(config)
        self.embeddings = ViTGeoEmbeddings(config)
        self.layers = nn.ModuleList([ViTGeoLayer(config, index) for index in range(config.num_hidden_layers)])
        self.layernorm = ViTGeoLayerNorm(config) if config.use_final_layernorm else nn.Identity()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The patch projection."""
        return self.embeddings.patch_embeddings

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        pixel_values: torch.Tensor,
        token_permutation: torch.Tensor | None = None,
        position_scale: float | None = None,
        interpolate_pos_encoding: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode pictures.

        Args:
            pixel_values: (B, C, height, width), normalised.
            token_permutation: (N,) or (B, N) LongTensor: paper A's RPI. Content moves, positions stay.
            position_scale: alpha for this call; the configuration's where it is None.
            interpolate_pos_encoding: allow a size that differs from `image_size`. A learned table is interpolated;
                sinusoids and rotations with index coordinates go on beyond the trained grid.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict` as in transformers.

        Returns:
            `last_hidden_state` (B, T, D), [CLS] and registers first, and `pooler_output` (B, D).

        Raises:
            ValueError: for a wrong shape or size of the pictures, a permutation of the wrong length, or an alpha where
                no encoding is added.
        """
        if position_scale is not None:
            check_position_scale(self.config.position_encoding, position_scale)
        grid_size = self.embeddings.grid_of(pixel_values, interpolate_pos_encoding)
        pixel_values = pixel_values.to(self.embeddings.patch_embeddings.projection.weight.dtype)
        hidden_states = self.embeddings(pixel_values, grid_size, token_permutation, position_scale)
        rope = None
        if self.config.position_encoding == "rope":
            head_dim = self.config.hidden_size // self.config.num_attention_heads
            rope = rope_tables(
                grid_size,
                head_dim,
                self.config.rope_theta,
                self.config.rope_coordinates,
                self.config.num_prefix_tokens,
                hidden_states.device,
            )
        for layer in self.layers:
            hidden_states = layer(hidden_states, rope, **kwargs)
        hidden_states = self.layernorm(hidden_states)
        if self.config.pooling == "cls":
            pooled = hidden_states[:, 0]
        else:
            pooled = hidden_states[:, self.config.num_prefix_tokens :].mean(dim=1)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class ViTGeoForImageClassification(ViTGeoPreTrainedModel):
    """The backbone with a linear classifier on the pooled output.

    Args:
        config: the model's configuration; `num_labels` is the number of classes.
    """

    def __init__(self, config: ViTGeoConfig):
        super().__init__(config)
        self.vitgeo = ViTGeoModel(config)
        self.classifier = nn.Linear(config.hidden_size, int(config.num_labels or 0))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        token_permutation: torch.Tensor | None = None,
        position_scale: float | None = None,
        interpolate_pos_encoding: bool = False,
        **kwargs: Any,
    ) -> ImageClassifierOutput:
        """Classify pictures.

        Args:
            pixel_values: as in `ViTGeoModel.forward`, and so are the next three.
            labels: (B,) class numbers, or (B, K) class probabilities (CutMix, label smoothing).
            token_permutation: RPI.
            position_scale: alpha for this call.
            interpolate_pos_encoding: allow another size.
            **kwargs: as in `ViTGeoModel.forward`.

        Returns:
            `logits` (B, K), `loss` where labels were given, and what was asked for beside.
        """
        outputs = self.vitgeo(
            pixel_values,
            token_permutation=token_permutation,
            position_scale=position_scale,
            interpolate_pos_encoding=interpolate_pos_encoding,
            **kwargs,
        )
        logits = self.classifier(outputs.pooler_output)
        loss = None
        if labels is not None:
            if self.config.problem_type in (None, "single_label_classification"):
                # transformers' own loss would take soft labels for multi-label ones and switch to BCE for good
                loss = nn.functional.cross_entropy(logits, labels)
            else:
                loss = self.loss_function(labels, logits, self.config)
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


__all__ = ["ViTGeoForImageClassification", "ViTGeoModel", "ViTGeoPreTrainedModel"]
