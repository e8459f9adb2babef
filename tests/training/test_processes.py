"""One process, two processes (gloo), and accumulation: the same training, with the stochastic parts off."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
PLAIN = {"crop": "none", "horizontal_flip": False, "num_train_epochs": 2, "per_device_eval_batch_size": 8}

WORKER = """
import json, sys
import numpy as np
import torch
from accelerate import PartialState
from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.data.sampling import ArrayImages
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import build_model, picture_format
from hf_vitgeo.training.supervised import train

torch.set_num_threads(1)
settings = json.loads(sys.argv[1])
def split(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    images = (rng.integers(0, 100, (n, 32, 32, 3)) + 150 * labels[:, None, None, None]).astype(np.uint8)
    return ImageSplit(ArrayImages(images, labels.astype(np.int64)), ("dark", "bright"))
args = SupervisedArguments(**settings)
run = train(args, build_model(args, ("dark", "bright")), picture_format(args), split(72, 0), split(37, 1))
if PartialState().is_main_process:
    print("processes", PartialState().num_processes)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(tmp_path, processes, name, **settings):
    """Train in new processes, as accelerate launch would start them."""
    (tmp_path / "worker.py").write_text(WORKER)
    folder = tmp_path / name
    everything = {"output_dir": str(folder), "preset": "tiny", "dataset_name": "colours", "num_warmup_epochs": 0.5}
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    words += ["--master_port", str(free_port()), str(tmp_path / "worker.py"), json.dumps({**everything, **settings})]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"processes {processes}" in done.stdout and done.stdout.count("processes") == 1
    return folder


def compare(one, other):
    first, second = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (one, other))
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], atol=1e-5, rtol=0)
    accuracies = [json.loads((folder / "args.json").read_text())["eval_accuracy"] for folder in (one, other)]
    assert accuracies[0] == accuracies[1]
    assert abs(accuracies[0] * 37 - round(accuracies[0] * 37)) < 1e-5  # every picture once: a share of 37


def test_two_processes_and_accumulation_equal_one(tmp_path):
    one = launch(tmp_path, 1, "one", per_device_train_batch_size=8, **PLAIN)
    two = launch(tmp_path, 2, "two", per_device_train_batch_size=4, **PLAIN)
    compare(one, two)
    split = launch(tmp_path, 1, "split", per_device_train_batch_size=4, gradient_accumulation_steps=2, **PLAIN)
    compare(one, split)
    facts = json.loads((two / "args.json").read_text())
    assert (facts["num_processes"], facts["steps"], facts["images_seen"]) == (2, 18, 144)


@pytest.mark.slow
def test_two_processes_resume_to_the_bit(tmp_path):
    settings = {"per_device_train_batch_size": 4, "checkpointing_steps": "5", "permute_tokens_in_training": True}
    straight = launch(tmp_path, 2, "straight", num_train_epochs=2, **settings)
    other = launch(tmp_path, 2, "other", num_train_epochs=2, **settings)
    resumed = launch(
        tmp_path, 2, "other", num_train_epochs=2, resume_from_checkpoint=str(other / "checkpoints/step_10"), **settings
    )
    first, second = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (straight, resumed))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
