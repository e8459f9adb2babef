"""What every training shares: the run folder, epochs, checkpoints, measurements, and an end that loses nothing."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from tqdm.auto import tqdm

from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.checkpoints import EXIT_TERMINATED, Checkpoints, Progress, asked_to_stop
from hf_vitgeo.training.loaders import TrainingBatches
from hf_vitgeo.training.loop_arguments import LoopArguments
from hf_vitgeo.training.stepping import FiniteGuard, Stepper, groups

#: Called at step 0 and every `--measure_every` steps with the step and the model.
OnMeasure = Callable[[int, Any], None]


def make_accelerator(args: LoopArguments) -> Accelerator:
    """The Accelerator of a run, with its precision, trackers and compiler.

    Args:
        args: parsed arguments.

    Returns:
        It.
    """
    return Accelerator(
        mixed_precision=args.mixed_precision,
        log_with=args.report_to or None,
        project_config=ProjectConfiguration(
            args.output_dir, logging_dir=str(RunDir(args.output_dir).path / "trackers")
        ),
        dynamo_backend="inductor" if args.torch_compile else None,
    )


class Loop(ABC):
    """One training in one run folder. A subclass builds model and stepper, and calls `set_up` with them.

    Args:
        args: parsed arguments.
        accelerator: of the run.
        batches: what to train on.
        on_measure: called at step 0 and every `args.measure_every` steps.
    """

    def __init__(
        self, args: LoopArguments, accelerator: Accelerator, batches: TrainingBatches, on_measure: OnMeasure | None
    ):
        self.args, self.accelerator, self.batches, self.on_measure = args, accelerator, batches, on_measure
        self.run, self.progress = RunDir(args.output_dir), Progress()
        self.steps_per_epoch = batches.per_epoch // args.gradient_accumulation_steps
        given = args.max_train_steps
        self.total = args.num_train_epochs * self.steps_per_epoch if given is None else given
        #: what the progress bar shows beside the loss
        self.shown: dict[str, str] = {}
        self.started, self.finished = time.perf_counter(), False

    @property
    def images_per_step(self) -> int:
        """Pictures of one optimiser step of all processes."""
        args = self.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * self.accelerator.num_processes

    def set_up(self, model: Any, rates: np.ndarray, facts: dict[str, Any]) -> None:
        """What is known before Accelerate has wrapped the model.

        Args:
            model: the backbone or classifier that results are about; bare.
            rates: (steps,) learning rate of each step.
            facts: what `args.json` holds beside the arguments and what is the same for every training.
        """
        args, accelerator = self.args, self.accelerator
        self.rates = rates
        self.facts = {
            **args.as_dict(),
            "model": args.label,
            "position_encoding": getattr(model.config, "position_encoding", None),
            "permute_tokens_in_training": getattr(model.config, "permute_tokens_in_training", None),
            "model_config": model.config.to_dict(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_train_images": self.batches.num_images,
            **facts,
            "num_processes": accelerator.num_processes,
            "device": str(accelerator.device),
        }

    def use(self, stepper: Stepper, *registered: Any) -> None:
        """Take what changes the weights.

        Args:
            stepper: with the prepared model.
            *registered: what checkpoints have to hold beside what Accelerate has prepared.
        """
        self.stepper = stepper
        self.accelerator.register_for_checkpointing(self.progress, *registered)
        self.checkpoints = Checkpoints(self.run.path / "checkpoints", self.accelerator, self.args.save_total_limit)
        self.guard = FiniteGuard(self.accelerator, check_norm=self.args.mixed_precision != "fp16")

    @abstractmethod
    def at_end_of_epoch(self, loss: float) -> dict[str, Any]:
        """What the log says of an epoch beside its loss; all processes call it.

        Args:
            loss: mean of the epoch.
        """

    @abstractmethod
    def save_result(self) -> None:
        """Write the model that came of it; all processes call it."""

    @abstractmethod
    def outcome(self) -> dict[str, Any]:
        """What `args.json` says at the end beside steps and speed."""

    def before_checkpoint(self) -> None:  # noqa: B027  a hook that may stay empty
        """Bring together what one process saves for all."""

    def train(self) -> RunDir:
        """Train, or go on, or do nothing where the run has ended already.

        Returns:
            The run folder.

        Raises:
            ValueError: when the folder is in use, or a checkpoint does not fit.
            FloatingPointError: when loss or gradient are not finite.
            OSError: when a checkpoint cannot be written.
            SystemExit: with status 143 after SIGTERM, when the checkpoint is saved.
        """
        self._open_folder()
        if not self.finished:
            try:
                self._run_epochs()
                self._finish()
            finally:
                self.accelerator.end_training()
        return self.run

    def _open_folder(self) -> None:
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

    def _run_epochs(self) -> None:
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
        self.stepper.model.train()
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
            f"{self.rates.max():.3g}), --mixed_precision no or --on_nan skip may help"
        )

    def _look(self) -> None:
        loss = self.guard.look(self._advice())
        if loss is not None:
            self.bar.set_postfix(loss=f"{loss:.3f}", **self.shown)
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
        self.before_checkpoint()
        self.progress.loss_sum = self.loss_sum.item()
        self.progress.seconds += time.perf_counter() - self.started
        self.started = time.perf_counter()
        self.checkpoints.save(self.progress.step, self._resumed_facts())

    def _end_of_epoch(self) -> None:
        progress = self.progress
        self._look()
        loss = self.accelerator.reduce(self.loss_sum.reshape(1), reduction="mean").item() / max(progress.counted, 1)
        event = {"epoch": progress.epoch, "step": progress.step, "loss": loss, **self.at_end_of_epoch(loss)}
        self.bar.set_postfix(loss=f"{loss:.3f}", **self.shown)
        if self.accelerator.is_main_process:
            self.run.log(**event, learning_rate=self.rates[progress.step - 1], skipped=progress.skipped)
        progress.epoch, progress.batch, progress.counted = progress.epoch + 1, 0, 0
        self.loss_sum.zero_()
        if self.args.checkpointing_steps == "epoch":
            self._checkpoint()

    def _finish(self) -> None:
        """Write the model and what came of it."""
        progress = self.progress
        self.save_result()
        if not self.accelerator.is_main_process:
            return
        seen, seconds = progress.step * self.images_per_step, progress.seconds + time.perf_counter() - self.started
        outcome = {
            "steps": progress.step,
            "images_seen": seen,
            "epochs": seen / self.batches.num_images if self.batches.num_images else None,
            "seconds": seconds,
            "images_per_second": seen / seconds,
            "measuring_seconds": progress.measuring,
            "skipped_steps": progress.skipped,
            **self.outcome(),
        }
        self.run.write_args({**self.facts, **outcome})
