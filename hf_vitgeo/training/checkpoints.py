"""Runs that survive: checkpoints that are whole or absent, resume, signals, and the stop on what is not finite.

A checkpoint is written beside its place, with a manifest of sizes and hashes, and renamed when it is whole; the one
before stays until then. Training state that Accelerate does not know (step, epoch, sums) is registered with it.
"""

import hashlib
import json
import math
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator

#: Exit status of a run that SIGTERM stopped after it saved a checkpoint: 128 + 15, as for a process that it killed.
EXIT_TERMINATED = 143

#: Optimiser steps between two looks at what is on the device: each look waits for it.
LOOK_EVERY = 16

_MANIFEST = "manifest.json"


class Progress:
    """Where a run is; saved and loaded with every checkpoint.

    Attributes:
        step: optimiser steps that are done.
        epoch: the epoch that goes on.
        batch: micro-batches of this epoch that are done, on each process.
        loss_sum: sum of the losses of this epoch's steps.
        counted: how many steps that sum has; a skipped one is not in it.
        skipped: steps that were left out because a gradient was not finite.
        best: the best accuracy of an evaluation.
        seconds: time spent on training before this process began.
        measuring: seconds of it that `on_measure` took.
    """

    def __init__(self) -> None:
        self.step = self.epoch = self.batch = self.counted = self.skipped = 0
        self.loss_sum, self.best = 0.0, -math.inf
        self.seconds = self.measuring = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Everything, as Accelerate saves it."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The reverse of `state_dict`."""
        vars(self).update(state)


class Checkpoints:
    """The checkpoints of a run, newest last, in folders `step_<n>`.

    Args:
        folder: where they are.
        accelerator: that prepared model and optimiser.
        keep: how many whole ones stay.
    """

    def __init__(self, folder: Path, accelerator: Accelerator, keep: int):
        self.folder, self.accelerator, self.keep = folder, accelerator, keep

    def all(self) -> list[Path]:
        """Every checkpoint that was completed, oldest first, damaged or not."""
        return sorted(self.folder.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))

    def save(self, step: int, facts: dict[str, Any]) -> Path:
        """Write a checkpoint; all processes call it.

        Args:
            step: optimiser steps that are done.
            facts: what has to be the same when it is resumed.

        Returns:
            Its folder.

        Raises:
            OSError: when it could not be written, as on a full disk; the ones before are still there.
        """
        target, aside = self.folder / f"step_{step}", self.folder / f".partial_{step}"
        main = self.accelerator.is_main_process
        try:
            if main:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            self.accelerator.save_state(str(aside))
            self.accelerator.wait_for_everyone()
            if main:
                content = {"step": step, "facts": facts, "files": _hashes(aside)}
                (aside / _MANIFEST).write_text(json.dumps(content), encoding="utf-8")
                shutil.rmtree(target, ignore_errors=True)
                aside.rename(target)
                for old in self.all()[: -self.keep]:
                    shutil.rmtree(old)
        except Exception as error:  # torch and safetensors have their own errors for a write that failed
            shutil.rmtree(aside, ignore_errors=True)
            free = shutil.disk_usage(self.folder.parent).free / 2**20  # torch does not say that a disk is full
            raise OSError(
                f"the checkpoint of step {step} could not be written to {self.folder} ({error}; {free:.0f} MiB are "
                f"free there). {self._last_good()}"
            ) from error
        self.accelerator.wait_for_everyone()
        return target

    def find(self, asked: str, facts: dict[str, Any]) -> Path | None:
        """The checkpoint to resume from.

        Args:
            asked: a folder, or "auto" for the newest whole one.
            facts: of this run; they have to be those of the checkpoint.

        Returns:
            Its folder; None for "auto" where there is none.

        Raises:
            ValueError: for a folder that holds no whole checkpoint, or one of a run with other arguments.
        """
        if asked != "auto":
            if problem := damage(Path(asked)):
                raise ValueError(f"--resume_from_checkpoint {asked}: {problem}. {self._last_good()}")
            _check_facts(Path(asked), facts)
            return Path(asked)
        for path in reversed(self.all()):
            if problem := damage(path):
                warnings.warn(f"checkpoint {path} is left out: {problem}; taking the one before", stacklevel=2)
                continue
            _check_facts(path, facts)
            return path
        return None

    def _last_good(self) -> str:
        good = [path for path in self.all() if not damage(path)]
        return f"The last good checkpoint is {good[-1]}" if good else "There is no good checkpoint"


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None where every file is as it was written.

    Args:
        path: its folder.

    Returns:
        One phrase that names the file.
    """
    try:
        files = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["files"]
        found = _hashes(path)
    except (OSError, json.JSONDecodeError, KeyError) as error:
        return f"it is no whole checkpoint ({error})"
    for name, expected in files.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != expected:
            return f"{name} is damaged ({found[name]['bytes']} of {expected['bytes']} bytes, or other content)"
    return None


def _hashes(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file but the manifest."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            with open(path, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            found[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    return found


def _check_facts(path: Path, facts: dict[str, Any]) -> None:
    """A run that goes on with other arguments would be neither of the two."""
    saved = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["facts"]
    for name in sorted({*saved, *facts}):
        if saved.get(name) != facts.get(name):
            raise ValueError(
                f"{path} was made with {name} {saved.get(name)}, this run has {facts.get(name)}; a resumed run needs "
                "the same. To train on with other settings: --model_name_or_path and another --output_dir"
            )


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, for as long as the block lasts; the run ends at the next step that looks.

    Yields:
        The event. Outside the main thread, where no handler can be set, it is never set.
    """
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGTERM, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


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
                f"{indices.tolist()}. {advice}"
            )
        if elsewhere:
            raise FloatingPointError(f"another process met a loss that is not finite. {advice}")
        return float(values[-1, 0].item())
