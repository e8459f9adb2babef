"""Learning-rate and other schedules as arrays over optimiser steps, and the groups of parameters that decay.

An array that is indexed by the optimiser step cannot run ahead under gradient accumulation or on many processes, and
goes on where it was after a resume.
"""

from typing import Any

import numpy as np

from hf_vitgeo.training.loop_arguments import LoopArguments

#: Parameters that are looked up or added rather than multiplied: no weight decay, as for vectors.
_NOT_DECAYED = ("position_embeddings", "cls_token", "cls_position", "register_tokens")


def cosine(start: float, end: float, total_steps: int) -> np.ndarray:
    """Half a cosine from `start` at step 0 towards `end` at step `total_steps`.

    Args:
        start: the value at step 0.
        end: the value that would be reached one step after the last.
        total_steps: length of the array.

    Returns:
        (total_steps,) float64.

    Raises:
        ValueError: for fewer than one step.
    """
    if total_steps < 1:
        raise ValueError(f"total_steps is {total_steps}; it must be at least 1")
    return end + (start - end) * 0.5 * (1 + np.cos(np.pi * np.arange(total_steps) / total_steps))


def warmup_cosine(base: float, final: float, total_steps: int, warmup_steps: int) -> np.ndarray:
    """Linear warm-up from 0 to `base`, then half a cosine to `final`.

    Args:
        base: the largest value, reached at step `warmup_steps`.
        final: the value that the cosine goes to.
        total_steps: length of the array, in optimiser steps.
        warmup_steps: steps of the linear part.

    Returns:
        (total_steps,) float64.

    Raises:
        ValueError: for fewer than one step, or a warm-up that does not end before the run.
    """
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(f"warmup_steps is {warmup_steps}; it must be from 0 to below total_steps, {total_steps}")
    rise = base * np.arange(warmup_steps) / max(warmup_steps, 1)
    return np.concatenate((rise, cosine(base, final, total_steps - warmup_steps)))


def learning_rates(
    args: LoopArguments, base: float, final: float, total_steps: int, steps_per_epoch: int
) -> np.ndarray:
    """The rate of every step of a run: warm-up and half a cosine.

    Args:
        args: parsed arguments, which name the warm-up.
        base: the largest rate.
        final: what the cosine goes to.
        total_steps: optimiser steps of the run; 0 for a model that stays untrained.
        steps_per_epoch: for a warm-up that is given in epochs.

    Returns:
        (total_steps,) float64.

    Raises:
        ValueError: for a warm-up that does not end before the run.
    """
    if total_steps == 0:
        return np.zeros(0)
    warmup = args.num_warmup_steps
    if warmup is None:
        warmup = round(args.num_warmup_epochs * steps_per_epoch)
    if warmup >= total_steps:
        raise ValueError(
            f"warm-up of {warmup} steps (--num_warmup_epochs {args.num_warmup_epochs} or --num_warmup_steps) does "
            f"not end before the run, which has {total_steps} (--max_train_steps or --num_train_epochs)"
        )
    return warmup_cosine(base, final, total_steps, warmup)


def parameter_groups(model: Any, weight_decay: float, decay_tables: bool = False) -> list[dict[str, Any]]:
    """Split a model's parameters into those that decay (matrices) and those that do not (vectors, tables, tokens).

    Args:
        model: a torch module.
        weight_decay: for the first group.
        decay_tables: whether tables and tokens decay too, as in DINO, which spares vectors only.

    Returns:
        Two groups for an optimiser; parameters without a gradient are left out.
    """
    decayed: list[Any] = []
    rest: list[Any] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            table = name.rsplit(".", 1)[-1] in _NOT_DECAYED
            spared = parameter.ndim < 2 or (table and not decay_tables)
            (rest if spared else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
