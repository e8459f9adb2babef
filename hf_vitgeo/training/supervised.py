"""Supervised training (papers A and B): one Accelerate loop that writes a run folder."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, ProjectConfiguration
from tqdm.auto import tqdm

from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import PictureFormat, choose_kernel, save_model
from hf_vitgeo.training.checkpoints import EXIT_TERMINATED, Checkpoints, Progress, asked_to_stop
from hf_vitgeo.training.evaluation import evaluate
from hf_vitgeo.training.loaders import Split, TrainingBatches, evaluation_loader
from hf_vitgeo.training.schedules import learning_rates, parameter_groups
from hf_vitgeo.training.stepping import FiniteGuard, Stepper, groups

#: Called at step 0 and every `--measure_every` steps with the step and the model.
OnMeasure = Callable[[int, Any], None]


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
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        log_with=args.report_to or None,
        project_config=ProjectConfiguration(
            args.output_dir, logging_dir=str(RunDir(args.output_dir).path / "trackers")
        ),
        dynamo_backend="inductor" if args.torch_compile else None,
    )
    loop = _Loop(args, accelerator, model, pictures, train_split, eval_split, on_measure)
    loop.open_folder()
    if not loop.finished:
        try:
            loop.run_epochs()
            loop.finish()
        finally:
            accelerator.end_training()
    return loop.run


class _Loop:
    """What the steps of one training share."""

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
        self.args, self.accelerator, self.pictures, self.on_measure = args, accelerator, pictures, on_measure
        choose_kernel(args, model, accelerator.device.type)
        sharded = accelerator.distributed_type == DistributedType.FSDP
        if sharded and (args.ema_decay is not None or args.measure_every):
            raise ValueError("--ema_decay and --measure_every need the whole model on each process: not under FSDP")
        self.batches = TrainingBatches(args, pictures, train_split, accelerator)
        self.eval_loader = evaluation_loader(args, pictures, eval_split, accelerator)
        self.run, self.progress = RunDir(args.output_dir), Progress()
        self.steps_per_epoch = self.batches.per_epoch // args.gradient_accumulation_steps
        given = args.max_train_steps
        self.total = args.num_train_epochs * self.steps_per_epoch if given is None else given
        self.rates = learning_rates(args, self.total, self.steps_per_epoch)
        optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.learning_rate)
        self.facts = {
            **args.as_dict(),
            "model": args.label,
            "position_encoding": getattr(model.config, "position_encoding", None),
            "permute_tokens_in_training": getattr(model.config, "permute_tokens_in_training", None),
            "model_config": model.config.to_dict(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_train_images": self.batches.num_images,
            "num_classes": len(train_split.class_names),
            "num_processes": accelerator.num_processes,
            "device": str(accelerator.device),
        }
        self.model, prepared = accelerator.prepare(model, optimizer)
        self.stepper = Stepper(args, accelerator, self.model, prepared, self.rates)
        ema = [self.stepper.ema] if self.stepper.ema else []
        accelerator.register_for_checkpointing(self.progress, *ema)
        self.checkpoints = Checkpoints(self.run.path / "checkpoints", accelerator, args.save_total_limit)
        self.guard = FiniteGuard(accelerator, check_norm=args.mixed_precision != "fp16")
        self.started, self.accuracy, self.finished = time.perf_counter(), math.nan, False

    def open_folder(self) -> None:
        """Begin in an empty folder, or where a checkpoint left off."""
        args, run = self.args, self.run
        checkpoint = None
        if args.resume_from_checkpoint:
            checkpoint = self.checkpoints.find(args.resume_from_checkpoint, self._resumed_facts())
        run.refuse_if_used(args.overwrite_output_dir, bool(args.resume_from_checkpoint))
        self.accelerator.wait_for_everyone()
        if checkpoint is not None:
            self.accelerator.load_state(str(checkpoint))
        # A finished run that is asked to go on, as a scheduler does, keeps what was measured after it.
        self.finished = checkpoint is not None and run.args().get("steps") == self.total
        if self.accelerator.is_main_process and not self.finished:
            if checkpoint is None:
                run.start_over()
            else:
                self.checkpoints.forget_after(checkpoint)
                run.rewind(self.progress.step, self.progress.epoch)
            run.write_args(self.facts)
        self.accelerator.wait_for_everyone()
        simple = {name: value for name, value in self.facts.items() if isinstance(value, bool | int | float | str)}
        if args.report_to:
            self.accelerator.init_trackers("hf_vitgeo", config=simple)

    def _resumed_facts(self) -> dict[str, Any]:
        facts = {**self.args.what_resume_keeps(), "num_processes": self.accelerator.num_processes}
        return {**facts, "num_train_images": self.batches.num_images, "parameters": self.facts["parameters"]}

    def run_epochs(self) -> None:
        """Every epoch that is left."""
        progress = self.progress
        epochs = math.ceil(self.total / self.steps_per_epoch)
        self.loss_sum = torch.tensor(progress.loss_sum, device=self.accelerator.device)
        bar = tqdm(
            total=self.total,
            initial=progress.step,
            desc=f"train {self.args.label}",
            unit="step",
            disable=not self.accelerator.is_main_process,
        )
        with asked_to_stop() as self.stop, bar as self.bar:
            if progress.step == 0:
                self._measure()
            while progress.epoch < epochs:
                self._epoch()

    def _epoch(self) -> None:
        progress, size = self.progress, self.args.gradient_accumulation_steps
        self.model.train()
        planned = min(self.steps_per_epoch, self.total - progress.epoch * self.steps_per_epoch)
        steps = planned - progress.batch // size
        batches = self.batches.epoch(progress.epoch, progress.batch)
        for _, group in zip(range(steps), groups(batches, size), strict=False):
            values = self.stepper.step(progress.step, group)
            progress.step += 1
            progress.batch += size
            self.bar.update()
            if values is None:
                progress.skipped += 1
            else:
                self.loss_sum += values[0]
                progress.counted += 1
                indices = torch.cat([batch["index"] for batch in group])
                if self.guard.add(progress.step, progress.epoch, values, indices):
                    self._look()
            self._after_step()
        self._end_of_epoch()

    def _advice(self) -> str:
        saved = self.checkpoints.all()
        return (
            f"The last checkpoint is {saved[-1] if saved else 'none'}; a smaller --learning_rate (now "
            f"{self.args.learning_rate}), --mixed_precision no or --on_nan skip may help"
        )

    def _look(self) -> None:
        loss = self.guard.look(self._advice())
        if loss is not None:
            self.bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{self.accuracy:.3f}")
            rate = self.rates[self.progress.step - 1]
            self.accelerator.log({"loss": loss, "learning_rate": rate}, step=self.progress.step)

    def _after_step(self) -> None:
        args, step = self.args, self.progress.step
        if args.measure_every and step % args.measure_every == 0:
            self._measure()
        saved = args.checkpointing_steps.isdecimal() and step % int(args.checkpointing_steps) == 0
        if saved:
            self._checkpoint()
        if self._asked_to_stop():
            if not saved:
                self._checkpoint()
            self.accelerator.print(
                f"stopped by SIGTERM at step {step} of {self.total}; go on with --resume_from_checkpoint auto"
            )
            raise SystemExit(EXIT_TERMINATED)

    def _asked_to_stop(self) -> bool:
        """Whether any process got the signal. Launchers kill after half a minute, so all look together each step."""
        if self.accelerator.num_processes == 1:
            return self.stop.is_set()
        asked = torch.tensor([float(self.stop.is_set())], device=self.accelerator.device)
        return bool(self.accelerator.reduce(asked).item())

    def _measure(self) -> None:
        if self.on_measure is None:
            return
        self._look()
        started = time.perf_counter()
        self.on_measure(self.progress.step, self.stepper.measured)
        self.progress.measuring += time.perf_counter() - started

    def _checkpoint(self) -> None:
        self._look()  # nothing that is not finite is ever saved as good
        # One process saves for all, so all go on from the mean; the straight run does the same at the same step.
        self.loss_sum = self.accelerator.reduce(self.loss_sum, reduction="mean")
        self.progress.loss_sum = self.loss_sum.item()
        self.progress.seconds += time.perf_counter() - self.started
        self.started = time.perf_counter()
        self.checkpoints.save(self.progress.step, self._resumed_facts())

    def _end_of_epoch(self) -> None:
        args, accelerator, progress = self.args, self.accelerator, self.progress
        self._look()
        loss = accelerator.reduce(self.loss_sum.reshape(1), reduction="mean").item() / max(progress.counted, 1)
        event = {"epoch": progress.epoch, "step": progress.step, "loss": loss, "accuracy": None}
        last = progress.step == self.total
        if last or (progress.epoch + 1) % args.eval_every_epochs == 0:
            self.accuracy = evaluate(accelerator, self.stepper.evaluated, self.eval_loader)
            event["accuracy"] = self.accuracy
            accelerator.log({"accuracy": self.accuracy}, step=progress.step)
            self.bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{self.accuracy:.3f}")
            if self.accuracy > progress.best:
                progress.best = self.accuracy
                self._save("best")
        if accelerator.is_main_process:
            self.run.log(**event, learning_rate=self.rates[progress.step - 1], skipped=progress.skipped)
        progress.epoch, progress.batch, progress.counted = progress.epoch + 1, 0, 0
        self.loss_sum.zero_()
        if args.checkpointing_steps == "epoch":
            self._checkpoint()

    def _save(self, folder: str) -> None:
        save_model(self.accelerator, self.stepper.evaluated, self.pictures, self.run.path / folder)

    def finish(self) -> None:
        """Write the model and what came of it."""
        progress, args = self.progress, self.args
        self._save("checkpoint")
        if not self.accelerator.is_main_process:
            return
        evaluated = [event["accuracy"] for event in self.run.events() if event.get("accuracy") is not None]
        per_step = args.per_device_train_batch_size * args.gradient_accumulation_steps * self.accelerator.num_processes
        seen, seconds = progress.step * per_step, progress.seconds + time.perf_counter() - self.started
        outcome = {
            "steps": progress.step,
            "images_seen": seen,
            "epochs": seen / self.batches.num_images if self.batches.num_images else None,
            "seconds": seconds,
            "images_per_second": seen / seconds,
            "measuring_seconds": progress.measuring,
            "eval_accuracy": evaluated[-1] if evaluated else None,
            "best_eval_accuracy": max(evaluated, default=None),
            "skipped_steps": progress.skipped,
        }
        self.run.write_args({**self.facts, **outcome})
