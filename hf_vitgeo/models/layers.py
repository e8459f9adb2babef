"""One pre-norm block and its parts."""

# B batch, T tokens, D width

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import ViTGeoAttention
from .configuration_vitgeo import ViTGeoConfig


class ViTGeoLayerNorm(nn.LayerNorm):
    """LayerNorm with, on request, parameters of its own for the [CLS] token (Marouani et al. 2026)."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__(config.hidden_size, eps=config.layer_norm_eps)
        specialized = config.token_specialization != "none"
        self.cls = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if specialized else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
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
        """(B, T, D) -> (B, T, D)."""
        return self.fc2(self.dropout(self.activation_fn(self.fc1(hidden_states))))


class ViTGeoDropPath(nn.Module):
    """Stochastic depth: drop a sub-layer's output for whole pictures in training (Huang et al. 2016)."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        if not self.training or self.rate == 0:
            return hidden_states
        kept = torch.empty_like(hidden_states[:, :1, :1]).bernoulli_(1 - self.rate)
        return hidden_states * kept / (1 - self.rate)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"rate={self.rate}"


class ViTGeoLayerScale(nn.Module):
    """A learned factor for each channel (Touvron et al. 2021)."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.factor = nn.Parameter(torch.full((config.hidden_size,), float(config.layerscale_value or 0.0)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
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
