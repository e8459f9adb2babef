"""Supervised training (papers A and B): one Accelerate loop that writes a run folder."""

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import PictureFormat, choose_kernel, save_model
from hf_vitgeo.training.evaluation import evaluate
from hf_vitgeo.training.loaders import Split, evaluation_loader, supervised_batches
from hf_vitgeo.training.loop import Loop, OnMeasure, make_accelerator
from hf_vitgeo.training.schedules import learning_rates, parameter_groups
from hf_vitgeo.training.stepping import Stepper


def train(
    args: SupervisedArguments,
    model: Any,
    pictures: PictureFormat,
    train_split: Split,
    eval_split: Split,
    on_measure: OnMeasure | None = None,
) -> RunDir:
    """Train a classifier and write its run folder: arguments, log, checkpoints, model with image processor, accuracy.

    Dropout, stochastic depth and RPT are seeded by (seed, step), order and augmentation by (seed, epoch, index), so a
    resumed run gives the same weights to the bit on the same kind and number of devices.

    Args:
        args: parsed arguments.
        model: a classifier (see `building.build_model`).
        pictures: the size and normalisation that it takes.
        train_split: what to train on.
        eval_split: what to evaluate on.
        on_measure: called at step 0 and every `args.measure_every` steps.

    Returns:
        The run folder.

    Raises:
        ValueError: when the folder is in use, the splits do not have the same classes, the training set is smaller
            than a step, or a checkpoint does not fit.
        FloatingPointError: when loss or gradient are not finite.
        OSError: when a checkpoint cannot be written.
        SystemExit: with status 143 after SIGTERM, when the checkpoint is saved.
    """
    if train_split.class_names != eval_split.class_names:
        raise ValueError("the training and evaluation splits have different classes; name splits of one data set")
    accelerator = make_accelerator(args)
    return _SupervisedLoop(args, accelerator, model, pictures, train_split, eval_split, on_measure).train()


class SupervisedStepper(Stepper):
    """Cross-entropy, one norm of the whole gradient, and the average of the weights where it is asked for.

    Args:
        args: parsed arguments.
        accelerator: that prepared model and optimiser.
        model: a classifier as Accelerate prepared it.
        optimizer: likewise.
        rates: (steps,) learning rate of each step.
    """

    def __init__(self, args: SupervisedArguments, accelerator: Accelerator, model: Any, optimizer: Any, rates: Any):
        super().__init__(args, accelerator, model, optimizer, rates)
        self.label_smoothing, self.ema = args.label_smoothing, None
        if args.ema_decay is not None:
            self.ema = AveragedModel(self.bare_model, multi_avg_fn=get_ema_multi_avg_fn(args.ema_decay))

    @property
    def measured(self) -> Any:
        """What is evaluated, as an analysis wants it: bare. The averaged weights are bare already."""
        return self.bare_model if self.ema is None else self.ema.module

    @property
    def evaluated(self) -> Any:
        """What is evaluated and saved: the averaged weights where they are asked for."""
        return self.model if self.ema is None else self.ema.module

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Cross-entropy with labels (B,), or (B, K) after CutMix and MixUp: never the BCE of transformers."""
        with self.accelerator.autocast():
            logits = self.model(pixel_values=batch["pixel_values"]).logits
        return nn.functional.cross_entropy(logits.float(), batch["labels"], label_smoothing=self.label_smoothing)

    def clip(self) -> torch.Tensor:
        """The norm of the whole gradient, before it is clipped to `max_grad_norm`."""
        return self.accelerator.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)

    def after_update(self, number: int) -> None:
        """Average the weights."""
        if self.ema is not None:
            self.ema.update_parameters(self.bare_model)


class _SupervisedLoop(Loop):
    """What the steps of one training share."""

    args: SupervisedArguments
    stepper: SupervisedStepper

    def __init__(
        self,
        args: SupervisedArguments,
        accelerator: Accelerator,
        model: Any,
        pictures: PictureFormat,
        train_split: Split,
        eval_split: Split,
        on_measure: OnMeasure | None,
    ):
        choose_kernel(args, model, accelerator.device.type)
        sharded = accelerator.distributed_type == DistributedType.FSDP
        if sharded and (args.ema_decay is not None or args.measure_every):
            raise ValueError("--ema_decay and --measure_every need the whole model on each process: not under FSDP")
        super().__init__(args, accelerator, supervised_batches(args, pictures, train_split, accelerator), on_measure)
        self.pictures = pictures
        self.eval_loader = evaluation_loader(args, pictures, eval_split, accelerator)
        rates = learning_rates(args, args.learning_rate, 0.0, self.total, self.steps_per_epoch)
        optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.learning_rate)
        self.set_up(model, rates, {"num_classes": len(train_split.class_names)})
        prepared, optimizer = accelerator.prepare(model, optimizer)
        stepper = SupervisedStepper(args, accelerator, prepared, optimizer, rates)
        self.use(stepper, *([stepper.ema] if stepper.ema else []))

    def at_end_of_epoch(self, loss: float) -> dict[str, Any]:
        """The accuracy, where it is this epoch's turn; the best model so far is saved."""
        progress, due = self.progress, (self.progress.epoch + 1) % self.args.eval_every_epochs == 0
        if not due and progress.step != self.total:
            return {"accuracy": None}
        accuracy = evaluate(self.accelerator, self.stepper.evaluated, self.eval_loader)
        self.accelerator.log({"accuracy": accuracy}, step=progress.step)
        self.shown["accuracy"] = f"{accuracy:.3f}"
        if accuracy > progress.best:
            progress.best = accuracy
            self._save("best")
        return {"accuracy": accuracy}

    def _save(self, folder: str) -> None:
        save_model(self.accelerator, self.stepper.evaluated, self.pictures, self.run.path / folder)

    def save_result(self) -> None:
        """The model at the end; the best one is there already."""
        self._save("checkpoint")

    def outcome(self) -> dict[str, Any]:
        """The last accuracy and the best one."""
        evaluated = [event["accuracy"] for event in self.run.events() if event.get("accuracy") is not None]
        return {
            "eval_accuracy": evaluated[-1] if evaluated else None,
            "best_eval_accuracy": max(evaluated, default=None),
        }
