"""One optimiser step of DINO: the student learns, the teacher and the centre follow."""

# V student views, G global views, B pictures, K outputs

import math
from typing import Any

import torch
from accelerate import Accelerator

from hf_vitgeo.training.dino_arguments import DINOArguments
from hf_vitgeo.training.dino_method import (
    DINOLoss,
    DINONetwork,
    cancel_last_layer_gradients,
    clip_each_gradient,
    teacher_temperatures,
    update_teacher,
)
from hf_vitgeo.training.schedules import cosine
from hf_vitgeo.training.stepping import Stepper


class DINOStepper(Stepper):
    """What changes the weights of student and teacher, and the centre.

    What the teacher says is summed up over an epoch, for its entropy and for the distance of the student.

    Args:
        args: parsed arguments.
        accelerator: that prepared student and optimiser.
        model: the student as Accelerate prepared it.
        optimizer: likewise; its first group is the one that decays.
        rates: (steps,) learning rate of each step.
        teacher: on the device, neither trained nor wrapped.
        steps_per_epoch: for what changes by the epoch.
    """

    def __init__(
        self,
        args: DINOArguments,
        accelerator: Accelerator,
        model: Any,
        optimizer: Any,
        rates: Any,
        teacher: DINONetwork,
        steps_per_epoch: int,
    ):
        super().__init__(args, accelerator, model, optimizer, rates)
        steps = max(len(rates), 1)
        self.teacher, self.steps_per_epoch = teacher, steps_per_epoch
        self.teach: Any = torch.compile(teacher) if args.torch_compile else teacher
        self.criterion = DINOLoss(args.out_dim, args.student_temperature, args.center_momentum).to(accelerator.device)
        self.momenta = cosine(args.teacher_momentum, 1.0, steps)
        self.decays = cosine(args.weight_decay, args.final_weight_decay, steps)
        self.temperatures = teacher_temperatures(
            args.warmup_teacher_temperature,
            args.teacher_temperature,
            args.warmup_teacher_epochs,
            math.ceil(steps / steps_per_epoch),
        )
        self.epoch, self.temperature = 0, float(self.temperatures[0])
        self.max_norm, self.freeze_last_layer = args.max_grad_norm, args.freeze_last_layer
        self.step_sums, self.epoch_sums = self._nothing(), self._nothing()

    def _nothing(self) -> dict[str, torch.Tensor]:
        """Sums of the teacher's logits and probabilities (K,), and of its entropy, over nothing."""
        zeros, outputs = self.criterion.center.new_zeros, self.criterion.center.shape[-1]
        return {"logits": zeros(outputs), "probabilities": zeros(outputs), "entropy": zeros(())}

    @property
    def measured(self) -> Any:
        """The teacher's backbone, which is what a run is for."""
        return self.teacher.backbone

    def before_losses(self, number: int) -> None:
        """Set what changes with the step."""
        self.epoch = number // self.steps_per_epoch
        self.temperature = float(self.temperatures[self.epoch])
        self.optimizer.param_groups[0]["weight_decay"] = float(self.decays[number])
        self.step_sums = self._nothing()

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The loss over all pairs of views.

        Args:
            batch: `global_crops` (B, G, 3, H, W), and `local_crops` (B, V - G, 3, h, w) where there are any.
        """
        # (B, views, 3, h, w) -> (views, B, 3, h, w)
        crops = [batch[name].transpose(0, 1) for name in ("global_crops", "local_crops") if name in batch]
        with torch.no_grad(), self.accelerator.autocast():
            taught = self.teach(crops[:1]).float()
        with self.accelerator.autocast():
            said = self.model(crops).float()
        self._sum_up(taught)
        return self.criterion(said, taught, self.temperature)

    @torch.no_grad()
    def _sum_up(self, taught: torch.Tensor) -> None:
        probabilities = self.criterion.teacher_probabilities(taught, self.temperature)
        self.step_sums["logits"] += taught.mean((0, 1))
        self.step_sums["probabilities"] += probabilities.mean((0, 1))
        self.step_sums["entropy"] += torch.special.entr(probabilities).sum(-1).mean()

    def clip(self) -> torch.Tensor:
        """Clip each gradient by its own norm, and keep the last layer where it is frozen."""
        self.accelerator.unscale_gradients()
        norm = clip_each_gradient(self.model.parameters(), self.max_norm)
        cancel_last_layer_gradients(self.epoch, self.bare_model.head, self.freeze_last_layer)
        return norm

    def after_update(self, number: int) -> None:
        """The teacher follows the student, and the centre what the teacher said on all processes."""
        update_teacher(self.teacher, self.bare_model, float(self.momenta[number]))
        means = {name: total / self.args.gradient_accumulation_steps for name, total in self.step_sums.items()}
        self.criterion.update_center(self.accelerator.reduce(means["logits"], reduction="mean"))
        for name, mean in means.items():
            self.epoch_sums[name] += mean

    def bring_together(self) -> None:
        """The epoch's sums become their means over processes, so that one process can save them for all."""
        for name, total in self.epoch_sums.items():
            self.epoch_sums[name] = self.accelerator.reduce(total, reduction="mean")

    def said_in_epoch(self, loss: float, steps: int) -> dict[str, float]:
        """What the teacher said since the last call; all processes call it.

        Args:
            loss: mean of these steps.
            steps: how many they were.

        Returns:
            In nats: `teacher_entropy`, the mean over pictures; `teacher_entropy_of_mean`, of the mean over pictures,
            near the former where the teacher says the same of everything; `kl` of the student from the teacher.
        """
        self.bring_together()
        means = {name: total / max(steps, 1) for name, total in self.epoch_sums.items()}
        self.epoch_sums = self._nothing()
        entropy = float(means["entropy"].item())
        of_mean = float(torch.special.entr(means["probabilities"]).sum().item())
        return {"teacher_entropy": entropy, "teacher_entropy_of_mean": of_mean, "kl": loss - entropy}

    def state_dict(self) -> dict[str, Any]:
        """Teacher, centre and the epoch's sums, as Accelerate saves them."""
        return {"teacher": self.teacher.state_dict(), "center": self.criterion.center, "sums": self.epoch_sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The reverse of `state_dict`."""
        self.teacher.load_state_dict(state["teacher"])
        self.criterion.center.copy_(state["center"])
        for name, total in self.epoch_sums.items():
            total.copy_(state["sums"][name])
