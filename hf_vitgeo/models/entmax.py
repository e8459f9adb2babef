"""entmax-1.5: softmax's sparse relative, with exact zeros (Peters et al. 2019; paper C).

p_i = [z_i / 2 - tau]_+^2 with the threshold tau that makes the row sum to one, which is where the norm of
r = [z / 2 - tau]_+ is one. That norm is convex and decreasing in tau, so that Newton's method from the left of tau
converges to it without ever passing it. (So would Newton's method on the sum of squares, in steps up to half as long:
the norm of a row of equal scores is linear in tau, its square is not.)

There are two ways to the same threshold. Compiled code and accelerators take a fixed number of Newton steps: a loop
that looks at the data could be neither compiled in one graph nor exported, and would make an accelerator wait. A CPU
without a compiler works in blocks of rows that stay in its cache, and stops each when it has converged.
"""

# R rows in a block, N scores a row

import math
from typing import Any

import torch

#: Scores in a block: larger ones leave the cache, and with smaller ones the calls cost more than the arithmetic. 2^20
#: was the fastest of 2^13 to 2^23 at 197 and at 1025 scores a row.
_BLOCK = 2**20


def newton_iterations(count: int) -> int:
    """Newton steps that are enough for float32 rows of `count` scores: 4 + ceil(log2(count) / 3)."""
    return 4 + math.ceil(math.log2(max(count, 1)) / 3)


def _in_fixed_steps(scores: torch.Tensor) -> torch.Tensor:
    """entmax-1.5 over the last dimension by Newton's method from max(z / 2) - 1."""
    shifted = (scores - scores.amax(dim=-1, keepdim=True)) / 2
    tau = torch.full_like(shifted[..., :1], -1.0)
    for _ in range(newton_iterations(scores.shape[-1])):
        rest = (shifted - tau).clamp(min=0)
        norm = (rest * rest).sum(dim=-1, keepdim=True).sqrt()
        # tau stays left of the solution, where the largest rest is positive: no division by zero
        tau = tau + (norm - 1) * norm / rest.sum(dim=-1, keepdim=True)
    rest = (shifted - tau).clamp(min=0)
    return rest * rest


def _in_blocks(scores: torch.Tensor) -> torch.Tensor:
    """entmax-1.5 over the last dimension, block by block."""
    flat = scores.reshape(-1, scores.shape[-1])
    result = torch.empty_like(flat, memory_format=torch.contiguous_format)
    rows = max(1, _BLOCK // scores.shape[-1])
    rest = torch.empty_like(result[:rows])  # of every block in turn: memory that is in the cache already
    for start in range(0, len(flat), rows):
        block = flat[start : start + rows]
        _solve_block(block, rest[: len(block)], result[start : start + rows])
    return result.view(scores.shape)


def _solve_block(scores: torch.Tensor, rest: torch.Tensor, result: torch.Tensor) -> None:
    """Write entmax-1.5 of (R, N) scores into `result`; `rest` holds r meanwhile.

    As tau only grows, what is once cut off at zero stays there: r is shifted and cut in place.
    """
    count = scores.shape[-1]
    torch.add(scores.amax(dim=-1, keepdim=True).mul_(-0.5), scores, alpha=0.5, out=rest)
    # By Cauchy and Schwarz, tau is at least mean - 1 / sqrt(N): near tau where the scores are alike.
    step = rest.mean(dim=-1, keepdim=True).sub_(count**-0.5).clamp_(min=-1)
    # After a step d the sum is still too large by at most N d^2.
    done = math.sqrt(8 * torch.finfo(scores.dtype).eps / count)
    total, norm = torch.empty_like(step), torch.empty_like(step)
    for _ in range(2 * newton_iterations(count)):
        rest.sub_(step).relu_()
        torch.sum(rest, dim=-1, keepdim=True, out=total)
        torch.linalg.vector_norm(rest, dim=-1, keepdim=True, out=norm)
        # rounding could ask for a step back, which would lift the zeros
        torch.sub(norm, 1, out=step).mul_(norm).div_(total).clamp_(min=0)
        # NaN counts as done
        if not (step > done).any():
            break
    rest.sub_(step).relu_()
    torch.mul(rest, rest, out=result)


def _gradient(probabilities: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Apply the Jacobian diag(s) - s s^T / sum(s), s = sqrt(p), which is symmetric; made of differentiable parts."""
    # The inner 1 keeps a second derivative finite where p is 0: there the root has an infinite slope.
    kept = probabilities > 0
    root = torch.where(kept, torch.where(kept, probabilities, 1).sqrt(), 0)
    weighted = root * grad
    return weighted - root * (weighted.sum(dim=-1, keepdim=True) / root.sum(dim=-1, keepdim=True))


def _gradient_in_blocks(probabilities: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """The same without a graph for a second derivative, in blocks of rows."""
    count = grad.shape[-1]
    flat, flat_grad = probabilities.reshape(-1, count), grad.reshape(-1, count)
    result = torch.empty_like(flat_grad, memory_format=torch.contiguous_format)
    rows = max(1, _BLOCK // count)
    roots, products = torch.empty_like(result[:rows]), torch.empty_like(result[:rows])
    for start in range(0, len(flat), rows):
        block = slice(start, start + rows)
        upstream = flat_grad[block]
        root = torch.sqrt(flat[block], out=roots[: len(upstream)])
        weighted = torch.mul(root, upstream, out=products[: len(upstream)])
        mean = weighted.sum(dim=-1, keepdim=True).div_(root.sum(dim=-1, keepdim=True))
        torch.addcmul(weighted, root, mean, value=-1, out=result[block])
    return result.view(grad.shape)


def _has_blocks(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


class _Entmax15(torch.autograd.Function):
    """entmax-1.5 over the last dimension of a float32 or float64 tensor. Saves its output, nothing else."""

    @staticmethod
    def forward(scores: torch.Tensor) -> torch.Tensor:
        return _in_blocks(scores) if _has_blocks(scores) else _in_fixed_steps(scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (probabilities,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not _has_blocks(grad):  # a second derivative is wanted, or fusion does better
            return _gradient(probabilities, grad)
        return _gradient_in_blocks(probabilities, grad)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], scores: torch.Tensor) -> tuple[torch.Tensor, int]:
        # any leading dimension is a row
        return _Entmax15.apply(scores.movedim(in_dims[0], 0)), 0


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
