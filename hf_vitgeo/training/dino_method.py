"""DINO (Caron et al. 2021), the self-distillation that paper C trains with: head, loss, teacher. Pure torch.

A student learns to say of one view of a picture what its teacher says of another. The teacher is the moving
average of the student and sees the global crops only. Its outputs are centred and sharpened, which keeps the pair from
agreeing on one answer for everything.
"""

# V student views, G global views (the first of V), B pictures, D width, K outputs

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations

#: The teacher's entropy over its largest value, ln K, above which it says the same of everything; and below which it
#: puts all on one output.
_FLAT, _PEAKED = 0.999, 1e-3
#: KL between teacher and student over ln K below which there is nothing left to learn.
_SETTLED = 1e-4


class DINOHead(nn.Module):
    """The projection head: three linear layers, L2 norm, and a linear layer whose rows have a norm of their own.

    Args:
        in_dim: D.
        out_dim: K; DINO's ViT-S has 65,536.
        hidden_dim: width of the hidden layers (DINO: 2048).
        bottleneck_dim: width before the last layer (DINO: 256).
        norm_last_layer: whether the norms of the last layer's rows stay 1; off, they are learned, which DINO does for
            its longest runs.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int = 65536,
        hidden_dim: int = 2048,
        bottleneck_dim: int = 256,
        norm_last_layer: bool = True,
    ):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(in_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.GELU(),
            nn.Linear(hidden_dim, bottleneck_dim),
        )
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.last_layer = parametrizations.weight_norm(nn.Linear(bottleneck_dim, out_dim, bias=False))
        norms = self.last_layer.parametrizations.weight.original0
        nn.init.ones_(norms)
        norms.requires_grad_(not norm_last_layer)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(..., D) features -> (..., K) logits before any temperature, each of them a cosine times the row's norm."""
        return self.last_layer(nn.functional.normalize(self.mlp(features), dim=-1))


class DINONetwork(nn.Module):
    """A backbone with the head on its pooled output; one forward pass for all views, so that DDP sees one.

    Args:
        backbone: maps pixel values of any size to an output with `pooler_output` (B, D), as `ViTGeoModel` does.
        head: what follows.
    """

    def __init__(self, backbone: nn.Module, head: DINOHead):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, crops: Sequence[torch.Tensor]) -> torch.Tensor:
        """Look at all views; those of one size go through the backbone together.

        Args:
            crops: (views, B, C, height, width) of each size.

        Returns:
            (V, B, K) logits, the views in the order of `crops`.
        """
        pooled = [
            # (views, B, C, h, w) -> (views * B, C, h, w) -> (views * B, D) -> (views, B, D)
            self.backbone(views.flatten(0, 1), interpolate_pos_encoding=True).pooler_output.unflatten(
                0, views.shape[:2]
            )
            for views in crops
        ]
        return self.head(torch.cat(pooled))


class DINOLoss(nn.Module):
    """Cross-entropy between the teacher's and the student's outputs, over all pairs of different views.

    Args:
        out_dim: K.
        student_temperature: of the student's softmax (DINO: .1).
        center_momentum: how much of the centre stays at an update (DINO: .9).
    """

    center: torch.Tensor

    def __init__(self, out_dim: int, student_temperature: float = 0.1, center_momentum: float = 0.9):
        super().__init__()
        self.student_temperature, self.center_momentum = student_temperature, center_momentum
        self.register_buffer("center", torch.zeros(1, out_dim))

    def teacher_probabilities(self, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
        """Centred and sharpened.

        Args:
            teacher: (G, B, K) logits.
            temperature: of the softmax (DINO: .04, or up to .07 over the first epochs).

        Returns:
            (G, B, K) that sum to 1, without a gradient.
        """
        return ((teacher.detach() - self.center) / temperature).softmax(dim=-1)

    def forward(self, student: torch.Tensor, teacher: torch.Tensor, teacher_temperature: float) -> torch.Tensor:
        """The mean over pictures and pairs. The centre stays as it is: see `update_center`.

        Args:
            student: (V, B, K) logits, the global views first and in the teacher's order.
            teacher: (G, B, K) logits.
            teacher_temperature: of the teacher's softmax.

        Returns:
            A scalar; ln K where both say the same of everything.

        Raises:
            ValueError: for shapes that do not fit, or where there is no pair of different views.
        """
        views, global_views = len(student), len(teacher)
        if student.shape[1:] != teacher.shape[1:] or global_views > views:
            raise ValueError(
                f"student {tuple(student.shape)} and teacher {tuple(teacher.shape)} do not fit: the teacher's views "
                "are the first of the student's"
            )
        terms = global_views * (views - 1)
        if terms == 0:
            raise ValueError("the loss needs a second view: of one global view and no local one there is no pair")
        probabilities = self.teacher_probabilities(teacher, teacher_temperature)
        scaled = student / self.student_temperature
        # A term is logsumexp(s) - p . s, as p sums to one; sums over views first make one product of all pairs.
        cross = (probabilities.sum(0) * scaled.sum(0)).sum(-1) - (probabilities * scaled[:global_views]).sum((0, -1))
        pairs_of = torch.full((views, 1), global_views, device=student.device)
        pairs_of[:global_views] -= 1
        normalizers = (pairs_of * scaled.logsumexp(dim=-1)).sum(0)  # (V, B) -> (B,)
        return (normalizers - cross).mean() / terms

    @torch.no_grad()
    def update_center(self, batch_mean: torch.Tensor) -> None:
        """Move the centre towards the teacher's mean output; after the loss, once an optimiser step.

        Args:
            batch_mean: (K,) mean of the teacher's logits over global views and pictures, of all processes.
        """
        self.center.lerp_(batch_mean.to(self.center.dtype), 1 - self.center_momentum)


def teacher_statistics(probabilities: torch.Tensor) -> dict[str, float]:
    """How sure the teacher is, and whether it tells pictures apart.

    Args:
        probabilities: (..., K) rows that sum to 1.

    Returns:
        `entropy`, the mean over rows, and `entropy_of_mean`, of the mean row; both in nats, from 0 to ln K.
    """
    rows = probabilities.flatten(0, -2).float()
    both = torch.stack((torch.special.entr(rows).sum(-1).mean(), torch.special.entr(rows.mean(0)).sum()))
    entropy, of_mean = both.tolist()
    return {"entropy": entropy, "entropy_of_mean": of_mean}


def collapse(entropy: float, kl: float, out_dim: int) -> str | None:
    """Whether the teacher's entropy and its distance from the student say that nothing is learned any more.

    Args:
        entropy: the teacher's mean entropy in nats.
        kl: mean KL divergence of the student from the teacher in nats: the loss less the entropy.
        out_dim: K.

    Returns:
        What happened and what to try, in one sentence; None for a run in order.
    """
    largest = math.log(out_dim)
    if entropy > _FLAT * largest:
        kind, advice = "the uniform output (its entropy is ln K)", "a lower --teacher_temperature or --center_momentum"
    elif entropy < _PEAKED * largest:
        kind, advice = "one output (its entropy is 0)", "a higher --teacher_temperature or more --out_dim"
    elif kl < _SETTLED * largest:
        kind, advice = "what the student says already", "a higher --teacher_momentum"
    else:
        return None
    return (
        f"collapse: the teacher fell to {kind}: entropy {entropy:.4g} of at most {largest:.4g}, KL {kl:.3g}. Try "
        f"{advice}, a smaller --learning_rate or a longer warm-up"
    )


def teacher_temperatures(warmup: float, final: float, warmup_epochs: int, epochs: int) -> np.ndarray:
    """The teacher's temperature in each epoch: a straight line, then constant.

    Args:
        warmup: in epoch 0.
        final: from epoch `warmup_epochs` - 1 on.
        warmup_epochs: epochs of the line; 0 for none.
        epochs: of the run.

    Returns:
        (epochs,) float64.
    """
    rise = np.linspace(warmup, final, warmup_epochs)[:epochs]
    return np.concatenate((rise, np.full(epochs - len(rise), final)))


def make_teacher(student: DINONetwork, **config_changes: Any) -> DINONetwork:
    """A copy of the student that is never trained by a gradient.

    Args:
        student: not yet wrapped or trained.
        **config_changes: fields of the backbone's configuration that differ, such as `drop_path_rate=0.0`.

    Returns:
        The teacher, in evaluation mode.
    """
    config = copy.deepcopy(student.backbone.config)
    for name, value in config_changes.items():
        setattr(config, name, value)
    backbone = type(student.backbone)(config)
    backbone.load_state_dict(student.backbone.state_dict())
    return DINONetwork(backbone, copy.deepcopy(student.head)).requires_grad_(False).eval()


@torch.no_grad()
def update_teacher(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """Move each parameter of the teacher towards the student's: t <- m t + (1 - m) s.

    Args:
        teacher: with the parameters of the student, in the same order.
        student: bare.
        momentum: m, from .996 to 1 in DINO.
    """
    for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
        mine.lerp_(other.to(mine.dtype), 1 - momentum)


@torch.no_grad()
def clip_each_gradient(parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Clip the gradient of each parameter by its own norm, as DINO does: not by the norm of all together.

    Args:
        parameters: with or without a gradient.
        max_norm: the largest norm of each (DINO: 3).

    Returns:
        The norm of all gradients together, before.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    # nothing here waits for an accelerator
    for gradient, factor in zip(gradients, (max_norm / (norms + 1e-6)).clamp(max=1), strict=True):
        gradient.mul_(factor)
    return torch.linalg.vector_norm(norms)


def cancel_last_layer_gradients(epoch: int, head: DINOHead, freeze_last_layer: int) -> None:
    """Keep the last layer as it is in the first epochs: without a gradient the optimiser leaves it out altogether.

    Args:
        epoch: from 0.
        head: the student's.
        freeze_last_layer: epochs (DINO: 1).
    """
    if epoch < freeze_last_layer:
        for parameter in head.last_layer.parameters():
            parameter.grad = None
