"""How a token knows where it is: none, a learned table, 2-D sinusoids, or axial rotation (paper A, section 3).

The fixed tables are computed in the forward pass from the grid and never stored: a buffer outside the checkpoint would
come back from `from_pretrained` as uninitialised memory.
"""

# B batch, N = h * w patches, P prefix tokens, T = P + N tokens, D width, H heads, d head dimension

import torch
from torch import nn


def grid_coordinates(grid_size: tuple[int, int], device: torch.device | None = None) -> torch.Tensor:
    """Row and column of every patch in row-major order.

    Args:
        grid_size: patches as (rows, columns).
        device: where the result is made.

    Returns:
        (N, 2) float32, columns (row, column).
    """
    rows, columns = grid_size
    row, column = torch.meshgrid(
        torch.arange(rows, device=device, dtype=torch.float32),
        torch.arange(columns, device=device, dtype=torch.float32),
        indexing="ij",
    )
    return torch.stack((row.flatten(), column.flatten()), dim=1)


def sinusoidal_table(grid_size: tuple[int, int], dim: int, device: torch.device | None = None) -> torch.Tensor:
    """Paper A's 2-D sinusoidal encoding: [sin x w, cos x w, sin y w, cos y w] with w_k = 10000^(-k / (D/4)).

    x is the column and y the row, integer indices from 0 (the form of MoCo v3).

    Args:
        grid_size: patches as (rows, columns).
        dim: width D, a multiple of 4.
        device: where the table is made.

    Returns:
        (N, D) float32, values in [-1, 1].
    """
    frequencies = 10000.0 ** (-torch.arange(dim // 4, device=device, dtype=torch.float32) / (dim // 4))
    # (N, 2) -> (N, 2, D/4)
    angles = grid_coordinates(grid_size, device)[:, :, None] * frequencies
    y, x = angles[:, 0], angles[:, 1]
    return torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=1)


def rope_tables(
    grid_size: tuple[int, int],
    head_dim: int,
    theta: float,
    coordinates: str = "index",
    num_prefix_tokens: int = 0,
    device: torch.device | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of axial 2-D rotary encoding, theta_k = theta^(-k / (d/4)) (paper A, base 10000).

    The first half of a head turns with the column x, the second with the row y.

    Args:
        grid_size: patches as (rows, columns).
        head_dim: d, a multiple of 4.
        theta: the base of the frequencies.
        coordinates: `index`: 0, 1, 2 ...; `normalized`: patch centres mapped to [-1, 1] on each axis and angles of
            2 pi times that (DINOv3).
        num_prefix_tokens: rows before the patches, with cosine 1 and sine 0: what they hold is not rotated.
        device: where the tables are made.

    Returns:
        Two (P + N, d) float32 tensors. The sine is negative for the first half of each axis, so that rotation is
        x cos + partner(x) sin.
    """
    quarter = head_dim // 4
    frequencies = theta ** (-torch.arange(quarter, device=device, dtype=torch.float32) / quarter)
    positions = grid_coordinates(grid_size, device)
    if coordinates == "normalized":
        sides = torch.tensor(grid_size, device=device, dtype=torch.float32)
        positions = 2 * torch.pi * (2 * (positions + 0.5) / sides - 1)
    # (N, 2) -> (N, 2, d/4)
    angles = positions[:, :, None] * frequencies
    y, x = angles[:, 0], angles[:, 1]
    cos = torch.cat((x, x, y, y), dim=1).cos()
    sin = torch.cat((-x, x, -y, y), dim=1).sin()
    pad = (0, 0, num_prefix_tokens, 0)
    return nn.functional.pad(cos, pad, value=1.0), nn.functional.pad(sin, pad, value=0.0)


def apply_rope(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the patch tokens of queries or keys; prefix tokens stay as they are, at position (0, 0).

    Args:
        states: (B, H, T, d), prefix tokens first.
        cos: (T, d) from `rope_tables`.
        sin: (T, d) likewise.

    Returns:
        (B, H, T, d) in the dtype of `states`. Pairs are half-split within each axis: (q1, q2) and (q3, q4).
    """
    # (.., d) = (.., axis, half, d/4): the partner of a dimension is the other half of its axis; its sign is in `sin`
    partner = states.unflatten(-1, (2, 2, -1)).flip(-2).flatten(-3)
    return states * cos.to(states.dtype) + partner * sin.to(states.dtype)


def interpolate_table(table: torch.Tensor, trained_grid: tuple[int, int], grid_size: tuple[int, int]) -> torch.Tensor:
    """Bring a learned table to another grid: bicubic, without antialias or aligned corners, as transformers' ViT does.

    Args:
        table: (1, h * w, D) for `trained_grid`.
        trained_grid: (h, w) of the table.
        grid_size: (h', w') that is needed. Grids are compared, not counts: 2x8 is not 4x4.

    Returns:
        (1, h' * w', D) in the dtype of the table.
    """
    if grid_size == trained_grid:
        return table
    dim = table.shape[-1]
    # (1, h w, D) -> (1, D, h, w)
    image = table.reshape(1, *trained_grid, dim).permute(0, 3, 1, 2).float()
    image = nn.functional.interpolate(image, size=grid_size, mode="bicubic", align_corners=False)
    # (1, D, h', w') -> (1, h' w', D)
    return image.permute(0, 2, 3, 1).reshape(1, -1, dim).to(table.dtype)
