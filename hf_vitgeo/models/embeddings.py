"""From pictures to the tokens that enter the first block."""

# B batch, N = h * w patches, P prefix tokens ([CLS] and registers), T = P + N tokens, D width

from typing import cast

import torch
from torch import nn

from .configuration_vitgeo import ViTGeoConfig, as_pair
from .position_encoding import interpolate_table, sinusoidal_table
from .token_permutation import permute_tokens


class ViTGeoPatchEmbeddings(nn.Module):
    """Cut pictures into patches and project each: (B, C, height, width) -> (B, N, D), row by row."""

    def __init__(self, config: ViTGeoConfig):
        super().__init__()
        self.patch_size = as_pair(config.patch_size)
        self.num_channels = config.num_channels
        self.projection = nn.Conv2d(
            config.num_channels, config.hidden_size, kernel_size=self.patch_size, stride=self.patch_size
        )

    def check_pixels(self, pixel_values: torch.Tensor) -> None:
        """Refuse what is no batch of pictures with the model's channels."""
        if pixel_values.ndim != 4 or pixel_values.shape[1] != self.num_channels:
            raise ValueError(
                f"pixel_values has shape {tuple(pixel_values.shape)}; allowed is "
                f"(batch, {self.num_channels}, height, width)"
            )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(B, C, height, width) -> (B, N, D)."""
        self.check_pixels(pixel_values)
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

    def grid_of(self, pixel_values: torch.Tensor, interpolate_pos_encoding: bool) -> tuple[int, int]:
        """The grid of pictures; another size than the trained one must be asked for."""
        self.patch_embeddings.check_pixels(pixel_values)
        height, width = pixel_values.shape[-2:]
        (trained_height, trained_width) = as_pair(self.config.image_size)
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
            table = cast(torch.Tensor, self.position_embeddings)
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
        if token_permutation is not None:
            tokens = permute_tokens(tokens, token_permutation)
        elif self.training and self.config.permute_tokens_in_training:
            # One permutation a forward pass, shared by the batch, as in paper A. It needs no check, which would make
            # every step wait for an accelerator.
            tokens = tokens.index_select(1, torch.randperm(tokens.shape[1], device=tokens.device))
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
