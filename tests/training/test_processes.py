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


def test_the_script_on_two_processes(tmp_path):
    words = "--preset tiny --max_train_samples 64 --max_eval_samples 33 --num_train_epochs 1 --num_warmup_epochs 0.3"
    words += " --per_device_train_batch_size 8 --measure_every 4 --measure_images 8 --measure_permutations 2"
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port"]
    command += [str(free_port()), str(ROOT / "scripts/train_supervised.py"), "--output_dir", "run", *words.split()]
    environment["HF_HOME"] = str(tmp_path / "home")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("learned: accuracy") == 1
    facts = json.loads((tmp_path / "run/args.json").read_text())
    assert (facts["num_processes"], facts["steps"], facts["images_seen"]) == (2, 4, 64)
    assert abs(facts["eval_accuracy"] * 33 - round(facts["eval_accuracy"] * 33)) < 1e-5
    steps = [row["step"] for row in json.loads((tmp_path / "run/results.json").read_text())]
    assert sorted(set(steps)) == [0, 4] and steps.count(0) == steps.count(4)


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


@pytest.mark.slow
def test_sharded_resume_to_the_bit(tmp_path, monkeypatch):
    """FSDP2 on two processes: the checkpoint is whole, loads without FSDP, and a resume goes on to the bit."""
    for name, value in {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
    }.items():
        monkeypatch.setenv(name, value)
    settings = {"per_device_train_batch_size": 4, "checkpointing_steps": "5", "num_train_epochs": 2}
    straight = launch(tmp_path, 2, "straight", **settings)
    other = launch(tmp_path, 2, "other", **settings)
    resumed = launch(tmp_path, 2, "other", resume_from_checkpoint=str(other / "checkpoints/step_10"), **settings)
    first, second = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (straight, resumed))
    assert first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())
