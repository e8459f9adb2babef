"""Multi-head self-attention: softmax through transformers' kernels, or entmax (paper C), as the configuration says.

Which function turns scores into weights is a property of a trained model, so it lives in the configuration and is
saved; `attn_implementation` only picks a kernel for softmax.
"""

# B batch, T tokens, P prefix tokens, N patches, D width, H heads, d = D / H

from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_vitgeo import ViTGeoConfig
from .entmax import entmax15
from .position_encoding import apply_rope

try:
    from entmax import entmax_bisect
except ImportError:
    entmax_bisect = None


def check_attention_kernel(config: ViTGeoConfig) -> None:
    """Refuse a kernel that would compute softmax in a model that was trained with entmax.

    Args:
        config: with `_attn_implementation` as transformers has resolved it.

    Raises:
        ValueError: for entmax with sdpa, a flash or a flex kernel.
        ImportError: for `attention_probs_function="entmax"` without the entmax package.
    """
    if config.attention_probs_function == "softmax":
        return
    kernel = config._attn_implementation
    if kernel != "eager" and not str(kernel).startswith("entmax"):
        raise ValueError(
            f"attn_implementation is {kernel!r} but attention_probs_function is {config.attention_probs_function!r}; "
            "that kernel computes softmax. Allowed are 'eager' and kernels registered under a name that starts with "
            "'entmax'"
        )
    if config.attention_probs_function == "entmax" and entmax_bisect is None:
        raise ImportError(
            "attention_probs_function is 'entmax', which runs on the entmax package: pip install entmax. "
            "'entmax15' needs no package"
        )


def dense_attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention that forms the T x T weights, for softmax and entmax; the signature of a transformers kernel.

    Args:
        module: the attention module; its configuration names the function.
        query: (B, H, T, d).
        key: (B, H, T, d).
        value: (B, H, T, d).
        attention_mask: added to the scores, or None.
        scaling: factor on the scores.
        dropout: probability of dropping a weight.
        **kwargs: what transformers passes to its kernels; not used.

    Returns:
        (B, T, H, d) output and (B, H, T, T) weights before dropout, each row summing to 1.
    """
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    function = module.config.attention_probs_function
    if function == "softmax":
        weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32)
    elif function == "entmax15":
        weights = entmax15(scores.float(), dim=-1)
    else:
        weights = entmax_bisect(scores.float(), alpha=float(module.config.entmax_alpha), dim=-1)
    weights = weights.to(query.dtype)
    dropped = nn.functional.dropout(weights, p=dropout, training=module.training)
    # (B, H, T, d) -> (B, T, H, d)
    return (dropped @ value).transpose(1, 2).contiguous(), weights


class ViTGeoAttention(nn.Module):
    """Self-attention of one block, with the parameter names of transformers' ViT.

    Args:
        config: the model's configuration.
        layer_index: the block's number; token specialization reaches q, k and v of the first third only.
    """

    def __init__(self, config: ViTGeoConfig, layer_index: int):
        super().__init__()
        self.config = config
        self.num_attention_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = False

        def projection() -> nn.Linear:
            return nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)

        self.q_proj, self.k_proj, self.v_proj = projection(), projection(), projection()
        specialized = config.token_specialization == "norm_qkv" and layer_index < config.num_hidden_layers // 3
        self.cls_projections = nn.ModuleList([projection() for _ in range(3)]) if specialized else None
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def _project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(B, T, D) -> queries, keys, values, each (B, H, T, d)."""
        heads = (*hidden_states.shape[:-1], self.num_attention_heads, self.head_dim)
        shared = (self.q_proj, self.k_proj, self.v_proj)
        if self.cls_projections is None:
            projected = [linear(hidden_states) for linear in shared]
        else:
            cls, rest = hidden_states[:, :1], hidden_states[:, 1:]
            pairs = zip(self.cls_projections, shared, strict=True)
            projected = [torch.cat((of_cls(cls), of_rest(rest)), dim=1) for of_cls, of_rest in pairs]
        return tuple(states.view(heads).transpose(1, 2) for states in projected)

    def forward(
        self,
        hidden_states: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend.

        Args:
            hidden_states: (B, T, D), after the block's LayerNorm: the tokens on which SSDT is measured.
            rope: (T, d) cosines and sines, or None.
            **kwargs: passed on to the kernel.

        Returns:
            (B, T, D), and the weights (B, H, T, T) where the kernel forms them, else None.
        """
        query, key, value = self._project(hidden_states)
        if rope is not None:
            query, key = apply_rope(query, *rope), apply_rope(key, *rope)
        check_attention_kernel(self.config)
        kernel = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, dense_attention_forward)
        output, weights = kernel(
            self,
            query,
            key,
            value,
            None,
            dropout=self.config.attention_probs_dropout_prob if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        # (B, T, H, d) -> (B, T, D)
        return self.o_proj(output.reshape(hidden_states.shape)), weights
