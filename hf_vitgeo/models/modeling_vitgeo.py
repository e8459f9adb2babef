"""ViTGeo: a Vision Transformer whose encoding of position, token order and attention function can be chosen.

Parameter names are those of transformers' ViT, so that its weights load (see `conversion.py`). This file and the
siblings that it imports are what a checkpoint carries to the Hub.
"""

# B batch, N = h * w patches, P prefix tokens ([CLS] and registers), T = P + N tokens, D width, L blocks

import os
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import ViTGeoAttention, check_attention_kernel
from .configuration_vitgeo import ViTGeoConfig, _pair, check_position_scale
from .position_encoding import interpolate_table, rope_tables, sinusoidal_table
from .token_permutation import permute_tokens


class ViTGeoPatchEmbeddings(nn.Module):
    """Cut pictures into patches and project each: (B, C, height, width) -> (B, N, D), row by row."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.patch_size = _pair(config.patch_size)
        self.num_channels = config.num_channels
        self.projection = nn.Conv2d(
            config.num_channels, config.hidden_size, kernel_size=self.patch_size, stride=self.patch_size
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        if pixel_values.ndim != 4 or pixel_values.shape[1] != self.num_channels:
            raise ValueError(
                f"pixel_values has shape {tuple(pixel_values.shape)}; allowed is "
                f"(batch, {self.num_channels}, height, width)"
            )
        # (B, C, height, width) -> (B, D, h, w) -> (B, N, D)
        return self.projection(pixel_values).flatten(2).transpose(1, 2)


class ViTGeoEmbeddings(nn.Module):
    """Patch tokens, permuted or not, with their position, behind [CLS] and the registers."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.config = config
        dim, (rows, columns) = config.hidden_size, config.grid_size
        self.patch_embeddings = ViTGeoPatchEmbeddings(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if config.use_cls_token else None
        registers = config.num_register_tokens
        self.register_tokens = nn.Parameter(torch.zeros(1, registers, dim)) if registers else None
        learned, sinusoidal = (config.position_encoding == name for name in ("learned", "sinusoidal"))
        slots = int(config.use_cls_token) + rows * columns
        self.position_embeddings = nn.Parameter(torch.zeros(1, slots, dim)) if learned else None
        # Paper A's code reads a [CLS] position that its sinusoidal class never defines; ours is learned.
        has_cls_position = sinusoidal and config.use_cls_token
        self.cls_position = nn.Parameter(torch.zeros(1, 1, dim)) if has_cls_position else None
        self.dropout = nn.Dropout(config.position_dropout_prob)

    def grid_of(self, height: int, width: int, interpolate_pos_encoding: bool) -> tuple[int, int]:
        """The grid of a picture of that size in pixels; another size than the trained one must be asked for."""
        (trained_height, trained_width) = _pair(self.config.image_size)
        (patch_height, patch_width) = self.patch_embeddings.patch_size
        if height % patch_height or width % patch_width:
            raise ValueError(
                f"the picture is {height}x{width} pixels; both sides must be divisible by the patch of "
                f"{patch_height}x{patch_width}"
            )
        if (height, width) != (trained_height, trained_width) and not interpolate_pos_encoding:
            raise ValueError(
                f"the picture is {height}x{width} pixels but the model is for {trained_height}x{trained_width}; "
                "pass interpolate_pos_encoding=True for another size"
            )
        return height // patch_height, width // patch_width

    def _positions(self, grid_size: tuple[int, int], device: torch.device) -> torch.Tensor | None:
        """(1, 1 + N, D) with [CLS] slot, or (1, N, D) without; None where nothing is added to the tokens."""
        if self.config.position_encoding == "learned":
            cls = int(self.config.use_cls_token)
            table = self.position_embeddings
            patches = interpolate_table(table[:, cls:], self.config.grid_size, grid_size)
            return patches if not cls else torch.cat((table[:, :1], patches), dim=1)
        if self.config.position_encoding == "sinusoidal":
            patches = sinusoidal_table(grid_size, self.config.hidden_size, device)[None]
            return patches if self.cls_position is None else torch.cat((self.cls_position.float(), patches), dim=1)
        return None

    def forward(
        self,
        pixel_values: torch.Tensor,
        grid_size: tuple[int, int],
        token_permutation: torch.Tensor | None = None,
        position_scale: float | None = None,
    ) -> torch.Tensor:
        """(B, C, height, width) -> (B, T, D)."""
        tokens = self.patch_embeddings(pixel_values)
        if token_permutation is None and self.training and self.config.permute_tokens_in_training:
            # One permutation a forward pass, shared by the batch, as in paper A.
            token_permutation = torch.randperm(tokens.shape[1], device=tokens.device)
        if token_permutation is not None:
            tokens = permute_tokens(tokens, token_permutation)
        if self.cls_token is not None:
            tokens = torch.cat((self.cls_token.expand(tokens.shape[0], -1, -1), tokens), dim=1)
        positions = self._positions(grid_size, tokens.device)
        if positions is not None:
            scale = self.config.position_scale if position_scale is None else position_scale
            # 1 * x is x to the bit, so no branch on the value is needed
            tokens = tokens + (positions * scale).to(tokens.dtype)
        if self.register_tokens is not None:
            cls = int(self.config.use_cls_token)
            registers = self.register_tokens.expand(tokens.shape[0], -1, -1)
            tokens = torch.cat((tokens[:, :cls], registers, tokens[:, cls:]), dim=1)
        return self.dropout(tokens)


class ViTGeoLayerNorm(nn.LayerNorm):
    """LayerNorm with, on request, parameters of its own for the [CLS] token (Marouani et al. 2026)."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__(config.hidden_size, eps=config.layer_norm_eps)
        specialized = config.token_specialization != "none"
        self.cls = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if specialized else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.cls is None:
            return super().forward(hidden_states)
        return torch.cat((self.cls(hidden_states[:, :1]), super().forward(hidden_states[:, 1:])), dim=1)


class ViTGeoMLP(nn.Module):
    """Two linear layers with an activation, and dropout between them (paper A)."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.activation_fn = ACT2FN[config.hidden_act]
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.dropout(self.activation_fn(self.fc1(hidden_states))))


class ViTGeoDropPath(nn.Module):
    """Stochastic depth: drop a sub-layer's output for whole pictures in training (Huang et al. 2016)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0:
            return hidden_states
        kept = torch.empty_like(hidden_states[:, :1, :1]).bernoulli_(1 - self.rate)
        return hidden_states * kept / (1 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class ViTGeoLayerScale(nn.Module):
    """A learned factor for each channel (Touvron et al. 2021)."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.factor = nn.Parameter(torch.full((config.hidden_size,), float(config.layerscale_value or 0.0)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.factor


def drop_path_rate(config: ViTGeoConfig, layer_index: int) -> float:
    """Rate of stochastic depth of a block: r i / (L - 1) on the closed ramp, r i / L on paper A's open one."""
    last = config.num_hidden_layers - (config.drop_path_ramp == "closed")
    return config.drop_path_rate * layer_index / max(last, 1)


class ViTGeoLayer(GradientCheckpointingLayer):
    """One pre-norm block: attention and MLP, each added to the residual stream."""

    def __init__(self, config: ViTGeoConfig, layer_index: int):
        super().__init__()
        self.layernorm_before = ViTGeoLayerNorm(config)
        self.attention = ViTGeoAttention(config, layer_index)
        self.layernorm_after = ViTGeoLayerNorm(config)
        self.mlp = ViTGeoMLP(config)
        self.drop_path = ViTGeoDropPath(drop_path_rate(config, layer_index))
        scaled = config.layerscale_value is not None
        self.layer_scale1 = ViTGeoLayerScale(config) if scaled else nn.Identity()
        self.layer_scale2 = ViTGeoLayerScale(config) if scaled else nn.Identity()

    def forward(self, hidden_states: torch.Tensor, rope: Any = None, **kwargs: Any) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        attended, _ = self.attention(self.layernorm_before(hidden_states), rope, **kwargs)
        hidden_states = hidden_states + self.drop_path(self.layer_scale1(attended))
        changed = self.mlp(self.layernorm_after(hidden_states))
        return hidden_states + self.drop_path(self.layer_scale2(changed))


class ViTGeoPreTrainedModel(PreTrainedModel):
    """What ViTGeo models share: initialisation, kernels, and how they are saved."""

    config: ViTGeoConfig
    config_class = ViTGeoConfig
    base_model_prefix = "vitgeo"
    main_input_name = "pixel_values"
    input_modalities = ("image",)
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
            init.constant_(module.factor, float(config.layerscale_value))
        elif isinstance(module, nn.Linear | nn.Conv2d):
            init.trunc_normal_(module.weight, mean=0.0, std=config.initializer_range)

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """As in transformers; the configuration names a class for every Auto class, not only for the one saved."""
        self.config.auto_map = {
            **(getattr(self.config, "auto_map", None) or {}),
            "AutoConfig": "configuration_vitgeo.ViTGeoConfig",
            "AutoModel": "modeling_vitgeo.ViTGeoModel",
            "AutoModelForImageClassification": "modeling_vitgeo.ViTGeoForImageClassification",
        }
        super().save_pretrained(save_directory, **kwargs)


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
        if pixel_values.ndim != 4:
            raise ValueError(f"pixel_values has shape {tuple(pixel_values.shape)}; allowed is (batch, channels, h, w)")
        grid_size = self.embeddings.grid_of(*pixel_values.shape[-2:], interpolate_pos_encoding)
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
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
