"""One optimiser step: accumulation, the loss, clipping, and what is not finite."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator

from hf_vitgeo.data.sampling import mix_seed
from hf_vitgeo.training.loop_arguments import LoopArguments

#: Optimiser steps between two looks at losses that are on the device: each look waits for it.
LOOK_EVERY = 16

#: `--on_nan skip` gives up after so many steps in a row: a model that is broken stays broken.
MAX_SKIPPED_IN_A_ROW = 100


class Stepper(ABC):
    """What changes the weights. A subclass knows the loss and how gradients are clipped.

    Args:
        args: parsed arguments.
        accelerator: that prepared model and optimiser.
        model: as Accelerate prepared it.
        optimizer: likewise.
        rates: (steps,) learning rate of each step.
    """

    def __init__(self, args: LoopArguments, accelerator: Accelerator, model: Any, optimizer: Any, rates: Any):
        self.args, self.accelerator, self.model = args, accelerator, model
        self.optimizer, self.rates = optimizer, rates
        self.skipped_in_a_row = 0

    @property
    def bare_model(self) -> Any:
        """The model without what Accelerate and the compiler put around it."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    @property
    @abstractmethod
    def measured(self) -> Any:
        """The model that `on_measure` gets: bare."""

    @abstractmethod
    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The mean loss of a micro-batch."""

    @abstractmethod
    def clip(self) -> torch.Tensor:
        """Clip the gradients.

        Returns:
            The norm of all of them together, before; the same on all processes.
        """

    def before_losses(self, number: int) -> None:  # noqa: B027  a hook that may stay empty
        """Get ready for the micro-batches of a step; it may be the next try after one that was skipped."""

    def after_update(self, number: int) -> None:  # noqa: B027  likewise
        """What follows an optimiser step that was taken."""

    def step(self, number: int, group: Sequence[dict[str, torch.Tensor]]) -> torch.Tensor | None:
        """Learn from the micro-batches of one step.

        Dropout, stochastic depth and RPT draw from torch's generator, which is seeded here by (seed, step,
        micro-batch, process): a resumed run need not restore it, and an evaluation in between cannot disturb it.

        Args:
            number: steps that are done.
            group: micro-batches on the device.

        Returns:
            (2,) loss and gradient norm, still on the device so that nothing waits for them; None for a step that was
            skipped because the norm was not finite.

        Raises:
            FloatingPointError: when too many steps in a row were skipped.
        """
        args, accelerator = self.args, self.accelerator
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = float(self.rates[number])
        self.before_losses(number)
        loss_sum = torch.zeros((), device=accelerator.device)
        for place, batch in enumerate(group):
            torch.manual_seed(mix_seed(args.seed, number, place, accelerator.process_index))
            last = place == len(group) - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(self.model):
                loss = self.loss(batch) / len(group)
                accelerator.backward(loss)
            loss_sum += loss.detach()
        norm = self.clip()
        if self._is_skipped(number, norm):
            self.optimizer.zero_grad()
            return None
        self.optimizer.step()
        self.optimizer.zero_grad()
        if args.on_nan == "skip" and self.accelerator.optimizer_step_was_skipped:  # by the scaler of fp16
            self._count_skipped(number)
            return None
        self.skipped_in_a_row = 0
        self.after_update(number)
        return torch.stack((loss_sum, torch.as_tensor(norm, device=loss_sum.device)))

    def _is_skipped(self, number: int, norm: torch.Tensor) -> bool:
        """For `--on_nan skip`. The norm is the same on all processes, so they agree; fp16's scaler skips by itself."""
        if self.args.on_nan == "stop" or self.args.mixed_precision == "fp16" or torch.isfinite(norm).item():
            return False
        self._count_skipped(number)
        return True

    def _count_skipped(self, number: int) -> None:
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW:
            raise FloatingPointError(
                f"{MAX_SKIPPED_IN_A_ROW} steps in a row had a gradient that is not finite, up to step {number + 1}"
            )


class FiniteGuard:
    """Looks at the losses and gradient norms of several steps at once: each look waits for the accelerator.

    Args:
        accelerator: of the run.
        check_norm: whether the norm counts too. Under fp16 it does not: the gradient scaler handles what overflows.
    """

    def __init__(self, accelerator: Accelerator, check_norm: bool):
        self.accelerator, self.check_norm = accelerator, check_norm
        self.seen: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []

    def add(self, step: int, epoch: int, values: torch.Tensor, indices: torch.Tensor) -> bool:
        """Remember one step.

        Args:
            step: its number, from 1.
            epoch: its epoch.
            values: (2,) loss and gradient norm, on the device.
            indices: numbers of its pictures.

        Returns:
            Whether it is time to look.
        """
        self.seen.append((step, epoch, values, indices))
        return len(self.seen) >= LOOK_EVERY

    def look(self, advice: str) -> float | None:
        """Wait for the device and refuse what is not finite; all processes call it at the same step.

        Args:
            advice: what the message ends with.

        Returns:
            The last loss; None where no step was added since the last look.

        Raises:
            FloatingPointError: naming step, epoch and pictures.
        """
        if not self.seen:
            return None
        values = torch.stack([values for *_, values, _ in self.seen])
        good = values.isfinite()
        bad = ~(good.all(dim=1) if self.check_norm else good[:, 0])
        elsewhere = bool(self.accelerator.reduce(bad.any().float().reshape(1)).item())
        rows, seen, self.seen = bad.tolist(), self.seen, []
        if any(rows):
            step, epoch, found, indices = seen[rows.index(True)]
            loss, norm = found.tolist()
            raise FloatingPointError(
                f"step {step} (epoch {epoch}): the loss is {loss} and the gradient's norm {norm}; its pictures are "
                f"{indices.tolist()} (numbers in the training set as loaded). {advice}"
            )
        if elsewhere:
            raise FloatingPointError(f"another process met a loss that is not finite. {advice}")
        return float(values[-1, 0].item())


def groups(batches: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Micro-batches in lists of `size`.

    Args:
        batches: micro-batches.
        size: how many make one optimiser step.
    """
    iterator = iter(batches)
    while group := list(islice(iterator, size)):
        yield group
