"""Runs that survive: checkpoints that are whole or absent, resume, and signals.

A checkpoint is written beside its place, with a manifest of sizes and hashes, and renamed when it is whole; the one
before stays until then. Training state that Accelerate does not know (step, epoch, sums) is registered with it.
"""

import hashlib
import json
import math
import re
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate import Accelerator

#: Exit status of a run that SIGTERM stopped after it saved a checkpoint: 128 + 15, as for a process that it killed.
EXIT_TERMINATED = 143

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
        return sorted((path for path in self.folder.glob("step_*") if _step_of(path) >= 0), key=_step_of)

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
                others = [path for path in self.all() if path != target]
                for old in others[: max(len(others) + 1 - self.keep, 0)]:
                    shutil.rmtree(old)
        except Exception as error:  # torch and safetensors have their own errors for a write that failed
            shutil.rmtree(aside, ignore_errors=True)
            message = write_failed(f"the checkpoint of step {step}", self.folder.parent, error)
            raise OSError(f"{message}. {self._last_good()}") from error
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
            ValueError: for a folder that holds no whole checkpoint, for "auto" where all are damaged, or for one of a
                run with other arguments.
        """
        if asked != "auto":
            if problem := damage(Path(asked)):
                raise ValueError(f"--resume_from_checkpoint {asked}: {problem}. {self._last_good()}")
            _check_facts(Path(asked), facts)
            return Path(asked)
        problems = []
        for path in reversed(self.all()):
            if problem := damage(path):
                problems.append(f"{path}: {problem}")
                continue
            for left_out in problems:
                warnings.warn(f"checkpoint {left_out}; taking the one before", stacklevel=2)
            _check_facts(path, facts)
            return path
        if problems:
            raise ValueError(f"no checkpoint is whole, so nothing can be resumed: {'; '.join(problems)}")
        return None

    def forget_after(self, path: Path) -> None:
        """Set aside the checkpoints after the one that a run goes on from: they are damaged, or of another course.

        Args:
            path: the checkpoint that was loaded.
        """
        moved = []
        for later in self.all():
            if _step_of(later) > _step_of(path):
                aside = later.with_name(f"left_{later.name}")
                shutil.rmtree(aside, ignore_errors=True)
                later.rename(aside)
                moved.append(aside.name)
        if moved:
            warnings.warn(f"the checkpoints after {path.name} are now called {', '.join(moved)}", stacklevel=2)

    def _last_good(self) -> str:
        good = [path for path in self.all() if not damage(path)]
        return f"The last good checkpoint is {good[-1]}" if good else "There is no good checkpoint"


def _step_of(path: Path) -> int:
    """The step in a checkpoint's name; -1 for a folder that is none of ours."""
    match = re.fullmatch(r"step_(\d+)", path.name)
    return int(match[1]) if match else -1


def write_failed(what: str, folder: Path, error: Exception) -> str:
    """Say what could not be written, and how full the disk is: torch and safetensors do not.

    Args:
        what: one phrase.
        folder: an existing folder on that disk.
        error: what they said.

    Returns:
        The beginning of a message.
    """
    free = shutil.disk_usage(folder).free / 2**20
    return f"{what} could not be written to {folder} ({error}; {free:.0f} MiB are free there)"


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
