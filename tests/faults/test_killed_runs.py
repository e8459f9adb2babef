"""A run that is killed again and again ends as the undisturbed one, to the bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
WORDS = (
    "--preset tiny --max_train_samples 192 --max_eval_samples 64 --num_train_epochs 25 --num_warmup_epochs 1 "
    "--per_device_train_batch_size 16 --checkpointing_steps 2 --policy color_jitter --cutmix_probability 0.5 "
    "--label_smoothing 0.1 --permute_tokens_in_training True --drop_path_rate 0.1 --dataloader_num_workers 1 "
    "--measure_every 100 --measure_images 16 --measure_permutations 2"
).split()
KILLS = 20


def start(tmp_path, name, *more):
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(ROOT / "scripts/train_supervised.py"), "--output_dir", str(tmp_path / name)]
    return subprocess.Popen(
        [*words, *WORDS, *more], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said[-3000:]


@pytest.mark.slow
def test_killed_twenty_times_equals_undisturbed(tmp_path):
    finish(start(tmp_path, "straight"))
    rng, killed, seen = random.Random(0), 0, set()
    while killed < KILLS:
        process = start(tmp_path, "killed", "--resume_from_checkpoint", "auto")
        checkpoints = tmp_path / "killed" / "checkpoints"
        before = {path.name for path in checkpoints.glob("step_*")}
        # dies at a random moment after it has got somewhere, so that every life goes on a little
        while process.poll() is None and {path.name for path in checkpoints.glob("step_*")} == before:
            time.sleep(0.005)
        if process.poll() is not None:
            break  # it finished
        time.sleep(rng.uniform(0, 0.6))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
        seen |= {path.name for path in checkpoints.glob("step_*")}
    assert killed >= 10, f"only {killed} kills: the run is too short"
    finish(start(tmp_path, "killed", "--resume_from_checkpoint", "auto"))
    first, second = (load_file(tmp_path / name / "checkpoint/model.safetensors") for name in ("straight", "killed"))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    for name in ("results.json", "log.jsonl"):
        one, other = ((tmp_path / folder / name).read_text() for folder in ("straight", "killed"))
        assert one == other, name
    assert json.loads((tmp_path / "killed/results.json").read_text())
