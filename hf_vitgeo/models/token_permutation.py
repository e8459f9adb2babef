"""Random permutation of the patch tokens, at inference (RPI) and in training (RPT) (paper A, sections 4.3 and 4.4).

The permutation acts after the patch projection and before any position: content moves, positions stay. A learned
table, the sinusoids and the rotation keep indices 0 ... N-1, and prefix tokens are never moved.
"""

import torch


def permute_tokens(tokens: torch.Tensor, permutation: torch.Tensor) -> torch.Tensor:
    """Reorder patch tokens: slot i of the result holds token `permutation[i]`.

    Args:
        tokens: (B, N, D) patch tokens, without prefix tokens.
        permutation: (N,) for all pictures, or (B, N) with one row a picture; integers, each row a permutation.

    Returns:
        (B, N, D). The identity gives the same bits.

    Raises:
        ValueError: for another shape or dtype, or a row that is no permutation of 0 ... N-1 (not looked at while the
            model is being compiled, because that would read values).
    """
    batch, count = tokens.shape[:2]
    check_permutation(permutation, batch, count)
    permutation = permutation.to(tokens.device)
    if permutation.ndim == 1:
        return tokens.index_select(1, permutation)
    return tokens.gather(1, permutation[:, :, None].expand_as(tokens))


def check_permutation(permutation: torch.Tensor, batch: int, count: int) -> None:
    """Refuse what is no permutation of `count` tokens for `batch` pictures.

    Args:
        permutation: what was given as `token_permutation`.
        batch: pictures in the batch.
        count: patch tokens.

    Raises:
        ValueError: as `permute_tokens` says.
    """
    allowed = f"a LongTensor of shape ({count},) or ({batch}, {count})"
    if not isinstance(permutation, torch.Tensor):
        raise ValueError(f"token_permutation is a {type(permutation).__name__}; allowed is {allowed}")
    if permutation.dtype != torch.long:
        raise ValueError(f"token_permutation has dtype {permutation.dtype}; allowed is {allowed}")
    if tuple(permutation.shape) not in ((count,), (batch, count)):
        raise ValueError(f"token_permutation has shape {tuple(permutation.shape)}; allowed is {allowed}")
    if torch.compiler.is_compiling():
        return
    ordered = permutation.sort(dim=-1).values
    if not torch.equal(ordered, torch.arange(count, device=permutation.device).expand_as(ordered)):
        raise ValueError(f"token_permutation holds a row that is no permutation of 0 ... {count - 1}")
