"""entmax-1.5: softmax's sparse relative, with exact zeros (Peters et al. 2019; paper C).

p_i = [z_i / 2 - tau]_+^2 with the threshold tau that makes the row sum to one. The sum is convex and decreasing in
tau, so that Newton's method from the left end of the bracket, max(z / 2) - 1, converges to tau without ever passing
it.
"""

import math
from typing import Any

import torch


def newton_iterations(count: int) -> int:
    """Newton steps that are enough for float32 rows of `count` scores: 4 + ceil(log2(count) / 2).

    A fixed number, because a loop that looks at the data could be neither compiled in one graph nor exported.
    """
    return 4 + math.ceil(math.log2(max(count, 1)) / 2)


class _Entmax15(torch.autograd.Function):
    """entmax-1.5 over the last dimension of a float32 or float64 tensor. Saves its output, nothing else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: torch.Tensor) -> torch.Tensor:
        shifted = (scores - scores.amax(dim=-1, keepdim=True)) / 2
        tau = torch.full_like(shifted[..., :1], -1.0)
        for _ in range(newton_iterations(scores.shape[-1])):
            rest = (shifted - tau).clamp(min=0)
            # tau stays left of the solution, where the largest rest is positive: no division by zero
            tau = tau + ((rest * rest).sum(dim=-1, keepdim=True) - 1) / (2 * rest.sum(dim=-1, keepdim=True))
        rest = (shifted - tau).clamp(min=0)
        return rest * rest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (probabilities,) = ctx.saved_tensors
        # Jacobian diag(s) - s s^T / sum(s) with s = sqrt(p)
        # The inner 1 keeps a second derivative finite where p is 0: there the root has an infinite slope.
        kept = probabilities > 0
        root = torch.where(kept, torch.where(kept, probabilities, 1).sqrt(), 0)
        weighted = root * grad
        return weighted - root * (weighted.sum(dim=-1, keepdim=True) / root.sum(dim=-1, keepdim=True))


def entmax15(scores: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Entmax with alpha 1.5: p_i = [z_i / 2 - tau]_+^2, which sets low scores to exactly 0.

    Args:
        scores: real tensor of any shape. -inf marks what must get nothing. float16 and bfloat16 are computed in
            float32, also under autocast.
        dim: the dimension that sums to 1.

    Returns:
        Probabilities of the shape and dtype of `scores`, in [0, 1]. As for softmax, a row with NaN or +inf, or one
        that is all -inf, is NaN. Training holds one tensor of the size of the result.

    Raises:
        TypeError: for integer scores.
    """
    if not scores.is_floating_point():
        raise TypeError(f"entmax15 needs floating-point scores, got {scores.dtype}")
    with torch.autocast(device_type=scores.device.type, enabled=False):
        wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
        probabilities = _Entmax15.apply(wide.movedim(dim, -1)).movedim(-1, dim)
    return probabilities.to(scores.dtype)
