"""ViTGeo model configuration: every architecture field, checked on construction."""

import difflib
import math
import warnings
from dataclasses import fields
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .presets import PRESETS

# Keys that transformers and the Hub write into a configuration, or pass through it, beside the declared fields.
_PASSED_THROUGH = frozenset(
    "architectures attn_implementation auto_map base_model_tp_plan dtype experts_implementation finetuning_task "
    "label2id model_type name_or_path num_labels quantization_config torch_dtype transformers_version "
    "tie_word_embeddings trust_remote_code".split()
)
_NEAR_MISS = 0.8  # difflib ratio from which an unknown key is taken for a misspelt field


def as_pair(size: Any) -> tuple[int, int]:
    """A size in pixels as (height, width).

    Args:
        size: an int for both, or a pair.

    Returns:
        (height, width).
    """
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


@strict
class ViTGeoConfig(PreTrainedConfig):
    r"""Configuration of a ViTGeo model.

    A ViTGeo is a pre-norm Vision Transformer whose encoding of position, token order and
    attention function can be chosen. The defaults are ViT-S/16 as DINO trains it; `from_preset` has the papers'
    models.

    Args:
        hidden_size (`int`, *optional*, defaults to 384): Width of the residual stream.
        num_hidden_layers (`int`, *optional*, defaults to 12): Number of blocks.
        num_attention_heads (`int`, *optional*, defaults to 6): Heads of each attention; divides `hidden_size`.
        intermediate_size (`int`, *optional*, defaults to 1536): Width inside the MLP.
        hidden_act (`str`, *optional*, defaults to `"gelu"`): Activation of the MLP.
        hidden_dropout_prob (`float`, *optional*, defaults to 0.0):
            Dropout between the two layers of the MLP, where paper A has it.
        attention_probs_dropout_prob (`float`, *optional*, defaults to 0.0): Dropout on the attention weights.
        position_dropout_prob (`float`, *optional*, defaults to 0.0): Dropout on the tokens that enter the first block.
        initializer_range (`float`, *optional*, defaults to 0.02): Standard deviation of the initial weights.
        layer_norm_eps (`float`, *optional*, defaults to 1e-6): Epsilon of the LayerNorms.
        image_size (`int` or pair (height, width), *optional*, defaults to 224): Size of the pictures in pixels.
        patch_size (`int` or pair (height, width), *optional*, defaults to 16): Size of a patch; divides `image_size`.
        num_channels (`int`, *optional*, defaults to 3): Channels of the pictures.
        qkv_bias (`bool`, *optional*, defaults to `True`): Whether queries, keys and values have a bias.
        num_register_tokens (`int`, *optional*, defaults to 0):
            Learned tokens between [CLS] and the patches, without a position (Darcet et al. 2024).
        use_cls_token (`bool`, *optional*, defaults to `True`): Whether there is a [CLS] token.
        use_final_layernorm (`bool`, *optional*, defaults to `True`): Whether a LayerNorm follows the last block.
        pooling (`"cls"` or `"mean"`, *optional*, defaults to `"cls"`):
            What `pooler_output` is: the [CLS] token, or the mean of the patch tokens.
        position_encoding (`"none"`, `"learned"`, `"sinusoidal"` or `"rope"`, *optional*, defaults to `"learned"`):
            How the model knows where a patch is (paper A).
        position_scale (`float`, *optional*, defaults to 1.0):
            Paper A's alpha: the learned or sinusoidal encoding, [CLS] slot included, is multiplied by it.
        position_init_std (`float`, *optional*, defaults to 0.02):
            Standard deviation of the initial learned table (paper A: 1.0).
        cls_init_std (`float`, *optional*, defaults to 0.02): Same for the [CLS] token (paper A: 1.0).
        rope_theta (`float`, *optional*, defaults to 10000.0): Base of the rotary frequencies (paper A: 10000).
        rope_coordinates (`"index"` or `"normalized"`, *optional*, defaults to `"index"`):
            Rotary coordinates: the patch's row and column (paper A), or patch centres mapped to [-1, 1] (DINOv3).
        permute_tokens_in_training (`bool`, *optional*, defaults to `False`):
            Paper A's RPT: a fresh permutation of the patch tokens at every training forward pass.
        attention_probs_function (`"softmax"`, `"entmax15"` or `"entmax"`, *optional*, defaults to `"softmax"`):
            What turns scores into attention weights (paper C: entmax-1.5). `"entmax"` is the entmax package's
            bisection.
        entmax_alpha (`float`, *optional*, defaults to 1.5): The alpha of `"entmax"`; above 1.
        token_specialization (`"none"`, `"norm"` or `"norm_qkv"`, *optional*, defaults to `"none"`):
            Own parameters of the [CLS] token in all norm layers, and in q, k, v of the first third of the blocks
            (Marouani et al. 2026). Registers go with the patches.
        drop_path_rate (`float`, *optional*, defaults to 0.0): Largest rate of stochastic depth, r.
        drop_path_ramp (`"closed"` or `"open"`, *optional*, defaults to `"closed"`):
            Rate of block i of L: i r / (L - 1), or i r / L as in paper A's code.
        layerscale_value (`float`, *optional*): Initial value of the LayerScale of both sub-layers; without, none.

    Raises:
        ValueError: for a value outside what a field allows, an impossible combination or a misspelt field.

    Example:
    ```python
    >>> from hf_vitgeo import ViTGeoConfig, ViTGeoModel
    >>> config = ViTGeoConfig.from_preset("vit_compact_paper_b", position_encoding="rope", num_labels=100)
    >>> config.grid_size
    (8, 8)
    >>> model = ViTGeoModel(config)

    ```
    """

    model_type = "vitgeo"

    hidden_size: int = 384
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    intermediate_size: int = 1536
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.0
    attention_probs_dropout_prob: float | int = 0.0
    position_dropout_prob: float | int = 0.0
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-6
    image_size: int | list[int] | tuple[int, int] = 224
    patch_size: int | list[int] | tuple[int, int] = 16
    num_channels: int = 3
    qkv_bias: bool = True
    num_register_tokens: int = 0
    use_cls_token: bool = True
    use_final_layernorm: bool = True
    pooling: Literal["cls", "mean"] = "cls"
    position_encoding: Literal["none", "learned", "sinusoidal", "rope"] = "learned"
    position_scale: float | int = 1.0
    position_init_std: float | int = 0.02
    cls_init_std: float | int = 0.02
    rope_theta: float | int = 10000.0
    rope_coordinates: Literal["index", "normalized"] = "index"
    permute_tokens_in_training: bool = False
    attention_probs_function: Literal["softmax", "entmax15", "entmax"] = "softmax"
    entmax_alpha: float | int = 1.5
    token_specialization: Literal["none", "norm", "norm_qkv"] = "none"
    drop_path_rate: float | int = 0.0
    drop_path_ramp: Literal["closed", "open"] = "closed"
    layerscale_value: float | int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        refuse_near_misses(type(self), kwargs)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers; a keyword that is close to a field without being one is refused here too."""
        refuse_near_misses(cls, kwargs, warn=False)
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def from_preset(cls, name: str, **overrides: Any) -> "ViTGeoConfig":
        """A model of the papers by name.

        Args:
            name: `vit_s16_paper_a`, `vit_compact_paper_b`, `vit_s16_dino` or `tiny`.
            **overrides: fields that differ from the preset, for instance `position_encoding="rope"`, `num_labels=100`.

        Returns:
            The configuration.

        Raises:
            ValueError: for a name that is no preset.
        """
        if name not in PRESETS:
            raise ValueError(f"preset is {name!r}; allowed are {', '.join(map(repr, PRESETS))}")
        return cls(**{**PRESETS[name], **overrides})

    @property
    def grid_size(self) -> tuple[int, int]:
        """Patches in a picture of `image_size`, as (rows, columns)."""
        (height, width), (patch_height, patch_width) = as_pair(self.image_size), as_pair(self.patch_size)
        return height // patch_height, width // patch_width

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: [CLS] and registers."""
        return int(self.use_cls_token) + self.num_register_tokens

    def validate_architecture(self) -> None:
        """Refuse values and combinations that no model can be built from; called on construction by `strict`."""
        self._validate_numbers()
        self._validate_grid()
        self._validate_combinations()

    def _validate_numbers(self) -> None:
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_channels"):
            _require(self, name, getattr(self, name) >= 1, "a whole number of at least 1")
        _require(self, "num_register_tokens", self.num_register_tokens >= 0, "a whole number of at least 0")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "position_dropout_prob", "drop_path_rate"):
            _require(self, name, 0 <= getattr(self, name) < 1, "a number from 0 up to, but not including, 1")
        for name in ("initializer_range", "position_init_std", "cls_init_std", "position_scale"):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value >= 0, "a finite number of at least 0")
        for name in ("layer_norm_eps", "rope_theta"):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value > 0, "a finite number above 0")
        _require(self, "entmax_alpha", math.isfinite(self.entmax_alpha) and self.entmax_alpha > 1, "a number above 1")
        if self.layerscale_value is not None:
            _require(self, "layerscale_value", math.isfinite(self.layerscale_value), "None or a finite number")

    def _validate_grid(self) -> None:
        for name in ("image_size", "patch_size"):
            value = getattr(self, name)
            whole = isinstance(value, int) or (len(value) == 2 and all(isinstance(side, int) for side in value))
            _require(
                self, name, whole and min(as_pair(value)) >= 1, "a whole number of pixels or a pair (height, width)"
            )
        for side, image, patch in zip(
            ("height", "width"), as_pair(self.image_size), as_pair(self.patch_size), strict=True
        ):
            if image % patch:
                raise ValueError(
                    f"image_size is {self.image_size}: its {side} of {image} pixels is not divisible by the "
                    f"patch {side} of {patch} (patch_size is {self.patch_size})"
                )

    def _validate_combinations(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size is {self.hidden_size}; it must be divisible by num_attention_heads, "
                f"which is {self.num_attention_heads}"
            )
        head_dim = self.hidden_size // self.num_attention_heads
        if self.position_encoding == "rope" and head_dim % 4:
            raise ValueError(
                f"position_encoding is 'rope', which needs a head dimension divisible by 4 (two axes, pairs of "
                f"dimensions); hidden_size / num_attention_heads is {self.hidden_size} / {self.num_attention_heads} "
                f"= {head_dim}"
            )
        if self.position_encoding == "sinusoidal" and self.hidden_size % 4:
            raise ValueError(f"hidden_size is {self.hidden_size}; a sinusoidal encoding needs a multiple of 4")
        if self.position_scale != 1:
            check_position_scale(self.position_encoding, self.position_scale)
        if self.pooling == "cls" and not self.use_cls_token:
            raise ValueError(
                "pooling is 'cls' but use_cls_token is False; without a [CLS] token pooling must be 'mean'"
            )
        if self.token_specialization != "none" and not self.use_cls_token:
            raise ValueError(
                f"token_specialization is {self.token_specialization!r} but use_cls_token is False; "
                "without a [CLS] token it must be 'none'"
            )
        if self.entmax_alpha != 1.5 and self.attention_probs_function != "entmax":
            raise ValueError(
                f"entmax_alpha is {self.entmax_alpha} but attention_probs_function is "
                f"{self.attention_probs_function!r}; another alpha than 1.5 needs 'entmax'"
            )


def check_position_scale(position_encoding: str, position_scale: float) -> None:
    """Refuse paper A's alpha where no encoding is added to the tokens.

    Args:
        position_encoding: the configuration's encoding.
        position_scale: alpha.

    Raises:
        ValueError: for `none` and `rope`, and for an alpha that is negative or not finite.
    """
    if position_encoding not in ("learned", "sinusoidal"):
        raise ValueError(
            f"position_scale is {position_scale} but position_encoding is {position_encoding!r}; alpha scales an "
            "encoding that is added to the tokens: 'learned' or 'sinusoidal'"
        )
    if not (math.isfinite(position_scale) and position_scale >= 0):
        raise ValueError(f"position_scale is {position_scale}; allowed is a finite number of at least 0")


def _require(config: ViTGeoConfig, name: str, holds: bool, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {getattr(config, name)!r}; allowed is {allowed}")


def refuse_near_misses(cls: type, keys: dict[str, Any], warn: bool = True) -> None:
    """Refuse keys that look like a misspelt field, and warn of the other unknown ones.

    transformers stores whatever it is given, so `num_register_token=4` would otherwise train without registers.

    Args:
        cls: the configuration class.
        keys: keyword arguments that are not fields, or are about to override fields.
        warn: whether unknown keys that resemble no field are worth a warning.

    Raises:
        ValueError: for a key that is close to a field (difflib ratio of at least 0.8); it names both.
    """
    known = {field.name for field in fields(cls)}
    for key in keys:
        if key in known or key in _PASSED_THROUGH or key.startswith("_") or hasattr(PreTrainedConfig, key):
            continue
        close = difflib.get_close_matches(key, known, n=1, cutoff=_NEAR_MISS)
        if close:
            raise ValueError(f"ViTGeoConfig has no field {key!r} (given as {keys[key]!r}); did you mean {close[0]!r}?")
        if warn:
            warnings.warn(f"ViTGeoConfig has no field {key!r}; it is stored and has no effect", stacklevel=4)


__all__ = ["ViTGeoConfig"]
