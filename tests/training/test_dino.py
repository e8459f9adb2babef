"""DINO pre-training as a whole: what a step does, runs that survive, and input that makes no sense."""

import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModel

from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.data.sampling import ArrayImages
from hf_vitgeo.training.building import picture_format
from hf_vitgeo.training.dino import build_student, crops_of, train
from hf_vitgeo.training.dino_arguments import DINOArguments
from hf_vitgeo.training.dino_method import make_teacher
from hf_vitgeo.training.dino_stepping import DINOStepper
from hf_vitgeo.training.schedules import parameter_groups
from tests.training.test_dino_method import naive_loss
from tests.training.test_processes import free_port
from tests.training.test_resume import Killed, assert_same

ROOT = Path(__file__).parents[2]
SMALL = {
    "preset": "tiny",
    "dataset_name": "colours",
    "num_local_crops": 2,
    "local_crop_size": 16,
    "out_dim": 24,
    "head_hidden_dim": 16,
    "head_bottleneck_dim": 8,
    "per_device_train_batch_size": 8,
    "num_train_epochs": 3,
    "num_warmup_epochs": 0.5,
    "learning_rate": 1e-3,
}


@pytest.fixture
def dino(tmp_path):
    def make(**changes):
        return DINOArguments(**{"output_dir": str(tmp_path / "run"), **SMALL, **changes})

    return make


@pytest.fixture
def pretrain(colours):
    def run(args, n=40, on_measure=None):
        return train(args, build_student(args), picture_format(args), colours(n), on_measure)

    return run


def state_of(run_folder, step):
    """What a checkpoint has beside model, optimiser and progress: teacher, centre, sums."""
    path = Path(run_folder) / "checkpoints" / f"step_{step}" / "custom_checkpoint_1.pkl"
    return torch.load(path, weights_only=True)


def test_a_step_is_the_naive_one(dino):
    """Loss, AdamW, teacher and centre of one step, against their formulas written out."""
    args = dino(drop_path_rate=0.0, max_grad_norm=1e9, freeze_last_layer=0, center_momentum=0.9)
    student = build_student(args).train()
    teacher = make_teacher(student)
    for parameter in teacher.parameters():  # a teacher that differs, and an update that can be seen
        parameter.data += 0.01 * torch.randn_like(parameter)
    reference_student = build_student(args).train()
    reference_teacher = make_teacher(teacher)
    batch = {"global_crops": torch.randn(3, 2, 3, 32, 32), "local_crops": torch.randn(3, 2, 3, 16, 16)}
    optimizer = torch.optim.AdamW(parameter_groups(student, args.weight_decay, decay_tables=True), lr=1.0)
    stepper = DINOStepper(args, Accelerator(cpu=True), student, optimizer, np.full(10, 1e-3), teacher, 5)
    loss, _ = stepper.step(2, [batch])

    views = [batch["global_crops"][:, 0], batch["global_crops"][:, 1]]
    views += [batch["local_crops"][:, 0], batch["local_crops"][:, 1]]
    said = torch.stack([reference_student([view[None]])[0] for view in views])
    taught = torch.stack([reference_teacher([view[None]])[0] for view in views[:2]])
    expected = naive_loss(said.detach().numpy(), taught.numpy(), np.zeros(24), 0.04)
    torch.testing.assert_close(loss, torch.as_tensor(float(expected)), atol=1e-5, rtol=1e-5)

    torch.nn.Module.zero_grad(reference_student)
    probabilities = (taught / 0.04).softmax(-1).detach()
    terms = [
        -(probabilities[t] * (said[s] / 0.1).log_softmax(-1)).sum(-1) for t in range(2) for s in range(4) if s != t
    ]
    torch.stack(terms).mean().backward()
    decay = 0.4 + (0.04 - 0.4) * 0.5 * (1 + math.cos(math.pi * 2 / 10))
    momentum = 1 + (0.996 - 1) * 0.5 * (1 + math.cos(math.pi * 2 / 10))
    own = dict(student.named_parameters())
    for name, parameter in reference_student.named_parameters():
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad
        # AdamW's first step: the gradient over its own size
        moved = parameter * (1 - 1e-3 * (decay if parameter.ndim > 1 else 0)) - 1e-3 * gradient / (
            gradient.abs() + 1e-8
        )
        sure = gradient.abs() > 1e-5  # where the sign of the gradient is no matter of rounding
        torch.testing.assert_close(own[name][sure], moved[sure], atol=1e-5, rtol=1e-4)
    for mine, before, other in zip(
        teacher.parameters(), reference_teacher.parameters(), student.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, momentum * before + (1 - momentum) * other, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(stepper.criterion.center[0], 0.1 * taught.mean((0, 1)), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("die_at", "extra"),
    [
        (7, {"checkpointing_steps": "3"}),
        (10, {"checkpointing_steps": "epoch", "attention_probs_function": "entmax15", "num_register_tokens": 2}),
        (4, {"checkpointing_steps": "2", "gradient_accumulation_steps": 2, "token_specialization": "norm_qkv"}),
    ],
)
def test_resumed_equals_straight(dino, pretrain, tmp_path, monkeypatch, die_at, extra):
    settings = {"drop_path_rate": 0.3, "permute_tokens_in_training": True, "warmup_teacher_epochs": 2, **extra}
    settings |= {"warmup_teacher_temperature": 0.03, "teacher_temperature": 0.05}
    straight = pretrain(dino(output_dir=str(tmp_path / "straight"), **settings))
    step = DINOStepper.step

    def die(self, number, group):
        if number == die_at:
            raise Killed
        return step(self, number, group)

    monkeypatch.setattr(DINOStepper, "step", die)
    with pytest.raises(Killed):
        pretrain(dino(**settings))
    monkeypatch.setattr(DINOStepper, "step", step)
    resumed = pretrain(dino(resume_from_checkpoint="auto", **settings))
    assert_same(straight, resumed)
    last = straight.args()["steps"]
    if settings["checkpointing_steps"] != "epoch" and last % int(settings["checkpointing_steps"]) == 0:
        one, other = state_of(straight.path, last), state_of(resumed.path, last)
        assert torch.equal(one["center"], other["center"]) and one["center"].abs().sum() > 0
        assert all(torch.equal(value, other["teacher"][name]) for name, value in one["teacher"].items())


WORKER = """
import json, sys
import numpy as np
import torch
from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.data.sampling import ArrayImages
from hf_vitgeo.training.building import picture_format
from hf_vitgeo.training.dino import build_student, train
from hf_vitgeo.training.dino_arguments import DINOArguments
torch.set_num_threads(1)
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (36, 32, 32, 3), dtype=np.uint8)
split = ImageSplit(ArrayImages(images, np.zeros(36, np.int64)), ("all",))
args = DINOArguments(**json.loads(sys.argv[1]))
train(args, build_student(args), picture_format(args), split)
"""


def launch(tmp_path, processes, name, **settings):
    (tmp_path / "worker.py").write_text(WORKER)
    everything = {**SMALL, "output_dir": str(tmp_path / name), "drop_path_rate": 0.0, "checkpointing_steps": "4"}
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port"]
    words += [str(free_port()), str(tmp_path / "worker.py"), json.dumps({**everything, **settings})]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    return tmp_path / name


def test_two_processes_and_accumulation_equal_one(tmp_path):
    """Weights, teacher, centre and log, with the stochastic parts off; crops are those of (seed, epoch, picture)."""
    settings = {"token_specialization": "norm", "norm_last_layer": False}  # every parameter is in DDP's gradient
    one = launch(tmp_path, 1, "one", per_device_train_batch_size=8, **settings)
    split = {"per_device_train_batch_size": 4, **settings}
    others = launch(tmp_path, 2, "two", **split), launch(tmp_path, 1, "sum", gradient_accumulation_steps=2, **split)
    for other in others:
        first, second = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (one, other))
        for name, value in first.items():
            torch.testing.assert_close(value, second[name], atol=1e-5, rtol=0)
        states = [state_of(folder, 12) for folder in (one, other)]
        torch.testing.assert_close(states[0]["center"], states[1]["center"], atol=1e-5, rtol=0)
        logs = [
            [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (one, other)
        ]
        for mine, its in zip(*logs, strict=True):
            for field in ("loss", "teacher_entropy", "teacher_entropy_of_mean", "kl"):
                assert abs(mine[field] - its[field]) < 1e-4, field


def test_what_is_saved_is_the_teachers_backbone(dino, pretrain):
    run = pretrain(dino(checkpointing_steps="5", num_register_tokens=2))
    teacher = state_of(run.path, 15)["teacher"]
    loaded = AutoModel.from_pretrained(run.checkpoint)
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, teacher[f"backbone.{name}"]), name
    assert loaded.config.num_register_tokens == 2 and loaded.config.drop_path_rate == 0.0
    facts = run.args()
    assert facts["head_parameters"] == 33 * 16 + 17 * 16 + 17 * 8 + 24 * 8 + 24
    assert facts["parameters"] == sum(parameter.numel() for parameter in loaded.parameters())
    assert [event["epoch"] for event in run.events()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher_temperature": 1e4}, "fell to the uniform output"),
        ({"teacher_temperature": 1e-6, "center_momentum": 0.0}, "fell to one output"),
    ],
)
def test_a_collapse_is_warned_of_and_logged(dino, pretrain, changes, message):
    with pytest.warns(UserWarning, match="epoch 1: collapse"):
        run = pretrain(dino(**changes))
    said = [event["collapse"] for event in run.events()]
    assert said[0] is None and message in said[1]


def test_a_run_in_order_is_not_warned_of(dino, pretrain):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = pretrain(dino())
    assert all(event["collapse"] is None for event in run.events())
    for event in run.events():
        assert 0 < event["teacher_entropy"] <= event["teacher_entropy_of_mean"] + 1e-5 < math.log(24) + 1e-4
        assert event["kl"] > 0


def test_the_learning_rate_goes_with_the_pictures_of_a_step(dino, pretrain):
    run = pretrain(dino(learning_rate=None, gradient_accumulation_steps=2))
    assert run.args()["largest_learning_rate"] == 5e-4 * 16 / 256


def test_no_local_crops_one_class_and_pictures_smaller_than_a_crop(dino, tmp_path):
    """All three are fine: two global views make a loss, and small pictures are enlarged."""
    args = dino(num_local_crops=0, local_crop_size=96)
    images = np.random.default_rng(0).integers(0, 256, (16, 7, 9, 3), dtype=np.uint8)
    split = ImageSplit(ArrayImages(images, np.zeros(16, np.int64)), ("all",))
    run = train(args, build_student(args), picture_format(args), split)
    assert run.args()["images_seen"] == 48 and math.isfinite(run.args()["loss"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_crop_size": 40}, "--local_crop_size is 40; allowed is at most the side of a global crop"),
        ({"local_crop_size": 14}, "--local_crop_size is 14; allowed is a multiple of --patch_size, which is 4"),
        ({"global_crop_scale": [0.5, 0.4]}, r"--global_crop_scale is \[0.5, 0.4\]; allowed are two shares"),
        ({"local_crop_scale": [0.0, 0.4]}, r"--local_crop_scale is \[0.0, 0.4\]"),
        ({"num_local_crops": -1}, "--num_local_crops is -1; allowed is a finite number of at least 0"),
        ({"teacher_momentum": 1.5}, "--teacher_momentum is 1.5; allowed is a number from 0 up to 1"),
        ({"teacher_temperature": 0.0}, "--teacher_temperature is 0.0; allowed is a finite number above 0"),
        ({"student_temperature": math.nan}, "--student_temperature is nan"),
        ({"out_dim": 0}, "--out_dim is 0"),
        ({"learning_rate": 0.0}, "--learning_rate is 0.0"),
        ({"knn_train_images": 19}, "--knn_train_images is 19; allowed is a whole number of at least 20"),
    ],
)
def test_impossible_arguments_are_refused_before_data_is_read(dino, changes, message):
    with pytest.raises(ValueError, match=message):
        args = dino(**changes)
        crops_of(args, picture_format(args))


def test_fewer_pictures_than_a_batch_are_refused(dino, pretrain):
    with pytest.raises(ValueError, match="5 training pictures are fewer than one batch of 8 on each of 1 processes"):
        pretrain(dino(), n=5)


def test_nothing_to_train_saves_the_untrained_teacher(dino, pretrain):
    args = dino(max_train_steps=0)
    run = pretrain(args)
    fresh = build_student(args).backbone.state_dict()
    assert all(
        torch.equal(value, fresh[name]) for name, value in load_file(run.checkpoint / "model.safetensors").items()
    )


def test_names_of_the_variants(dino):
    assert dino().label == "cls baseline"
    assert dino(num_register_tokens=4).label == "register-4"
    assert dino(token_specialization="norm_qkv").label == "specialization"
    assert dino(attention_probs_function="entmax15", position_encoding="rope").label == "entmax15+rope"
    assert dino(model_label="mine").label == "mine"
