"""Runs that survive: a resumed run is the straight run, to the bit."""

import json
import multiprocessing
import os
import signal
import threading
import time
import warnings

import pytest
import torch
from safetensors.torch import load_file

from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.checkpoints import damage

#: Everything that draws: crop and flip, AutoAugment, CutMix, dropout, RPT.
STOCHASTIC = {
    "policy": "autoaugment_cifar10",
    "cutmix_probability": 0.5,
    "permute_tokens_in_training": True,
    "drop_path_rate": 0.3,
    "label_smoothing": 0.1,
}


def weights(run):
    return load_file(run.checkpoint / "model.safetensors")


def assert_same(one, other):
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    assert one.results() == other.results()
    assert one.events() == other.events()


class Killed(Exception):
    pass


@pytest.fixture
def interrupted(arguments, colours, fit, monkeypatch):
    """Run up to a step, lose the process, and go on from the newest checkpoint."""
    from hf_vitgeo.training.supervised import SupervisedStepper

    def run(die_at, **settings):
        straight_step = SupervisedStepper.step

        def step(self, number, group):
            if number == die_at:
                raise Killed
            return straight_step(self, number, group)

        monkeypatch.setattr(SupervisedStepper, "step", step)
        with pytest.raises(Killed):
            fit(arguments(**settings), colours(104), colours(40, seed=1))
        monkeypatch.setattr(SupervisedStepper, "step", straight_step)
        resumed = arguments(**settings, resume_from_checkpoint="auto")
        return fit(resumed, colours(104), colours(40, seed=1))

    return run


@pytest.mark.parametrize(
    ("die_at", "extra"),
    [
        (9, {}),  # in the middle of the second epoch
        (6, {"dataloader_num_workers": 2}),  # at its beginning
        (5, {"gradient_accumulation_steps": 2, "ema_decay": 0.9}),
        (13, {"checkpointing_steps": "epoch"}),
        (9, {"augment_on_device": True, "dataloader_num_workers": 1}),
        (11, {"cutmix_probability": 0.0, "mixup_probability": 0.7, "cutout_size": 8, "policy": "color_jitter"}),
    ],
)
def test_resumed_equals_straight(interrupted, arguments, colours, fit, tmp_path, die_at, extra):
    settings = {**STOCHASTIC, "checkpointing_steps": "4", **extra}
    straight = fit(arguments(output_dir=str(tmp_path / "straight"), **settings), colours(104), colours(40, seed=1))
    resumed = interrupted(die_at, output_dir=str(tmp_path / "resumed"), **settings)
    assert_same(straight, resumed)
    assert len(resumed.events()) == 3


def test_measurements_do_not_disturb_and_are_not_doubled(interrupted, arguments, colours, fit, tmp_path):
    plain = fit(arguments(output_dir=str(tmp_path / "plain"), **STOCHASTIC), colours(104), colours(40, seed=1))
    seen = []

    def on_measure(step, model):
        seen.append(step)
        torch.rand(5)  # whatever a measurement draws

    args = arguments(output_dir=str(tmp_path / "measured"), measure_every=5, **STOCHASTIC)
    measured = fit(args, colours(104), colours(40, seed=1), on_measure)
    assert seen == [0, 5, 10, 15]
    for name, value in weights(plain).items():
        assert torch.equal(value, weights(measured)[name])
    assert measured.args()["measuring_seconds"] > 0


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(arguments, colours, fit, tmp_path):
    straight = fit(arguments(output_dir=str(tmp_path / "a"), checkpointing_steps="4"), colours(104), colours(40))
    args = arguments(output_dir=str(tmp_path / "b"), checkpointing_steps="4")
    run = fit(args, colours(104), colours(40))
    steps = sorted((run.path / "checkpoints").iterdir())
    assert [path.name for path in steps] == ["step_12", "step_16"]
    content = (steps[1] / "model.safetensors").read_bytes()
    (steps[1] / "model.safetensors").write_bytes(content[:-100])
    (run.path / "args.json").write_text("{}")  # not finished
    assert "model.safetensors is damaged" in damage(steps[1])
    resumed = arguments(output_dir=str(tmp_path / "b"), checkpointing_steps="4", resume_from_checkpoint="auto")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert_same(straight, fit(resumed, colours(104), colours(40)))
    said = [str(warning.message) for warning in said]
    assert any("step_16: model.safetensors is damaged" in text and "taking the one before" in text for text in said)
    assert any("are now called left_step_16" in text for text in said)
    (steps[0] / "optimizer.bin").write_bytes(b"")
    named = arguments(output_dir=str(tmp_path / "b"), resume_from_checkpoint=str(steps[0]), checkpointing_steps="4")
    with pytest.raises(ValueError, match=r"step_12: optimizer.bin is damaged.*last good checkpoint is .*step_16"):
        fit(named, colours(104), colours(40))


def test_a_resumed_run_needs_the_same_arguments(arguments, colours, fit):
    fit(arguments(), colours(104), colours(40))
    with pytest.raises(ValueError, match="learning_rate 0.001, this run has 0.1"):
        fit(arguments(learning_rate=0.1, resume_from_checkpoint="auto"), colours(104), colours(40))


def test_a_folder_in_use_is_refused_and_overwritten_when_asked(arguments, colours, fit):
    first = fit(arguments(), colours(104), colours(40))
    first.append_results([{"metric": "ssdt", "value": 1.0}])
    (first.path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds a run.*--overwrite_output_dir"):
        fit(arguments(seed=1), colours(104), colours(40))
    second = fit(arguments(seed=1, overwrite_output_dir=True), colours(104), colours(40))
    assert second.results() == [] and len(second.events()) == 3 and second.args()["seed"] == 1
    assert (second.path / "notes.txt").read_text() == "mine"


def test_a_run_killed_before_its_first_checkpoint_begins_anew(interrupted, arguments, colours, fit, tmp_path):
    straight = fit(arguments(output_dir=str(tmp_path / "straight")), colours(104), colours(40, seed=1))
    assert_same(straight, interrupted(3, output_dir=str(tmp_path / "b")))


def test_sigterm_saves_and_exits_with_its_code(arguments, colours, fit, tmp_path):
    settings = {"num_train_epochs": 40, "num_warmup_epochs": 1, "checkpointing_steps": "no"}
    args = arguments(output_dir=str(tmp_path / "b"), **settings)
    before = signal.getsignal(signal.SIGTERM)

    def terminate():
        while not (tmp_path / "b" / "log.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    with pytest.raises(SystemExit) as stopped:
        fit(args, colours(104), colours(40))
    thread.join()
    assert stopped.value.code == 143 and signal.getsignal(signal.SIGTERM) is before
    (saved,) = (tmp_path / "b" / "checkpoints").iterdir()
    assert 6 <= int(saved.name.removeprefix("step_")) < 240
    resumed = arguments(output_dir=str(tmp_path / "b"), resume_from_checkpoint="auto", **settings)
    straight = fit(arguments(output_dir=str(tmp_path / "a"), **settings), colours(104), colours(40))
    assert_same(straight, fit(resumed, colours(104), colours(40)))


def test_what_is_not_finite_stops_with_step_pictures_and_checkpoint(arguments, colours, fit):
    broken = colours(104)
    wild = arguments(learning_rate=1e30, max_grad_norm=1e30, checkpointing_steps="1", num_warmup_epochs=0)
    with pytest.raises(FloatingPointError, match=r"step 2 \(epoch 0\).*pictures are \[.*step_1;.*--learning_rate"):
        fit(wild, broken, colours(40))
    assert not damage(RunDir(wild.output_dir).path / "checkpoints" / "step_1")


def test_skipping_what_is_not_finite(arguments, colours, fit, monkeypatch):
    from hf_vitgeo.training.supervised import SupervisedStepper

    real = SupervisedStepper.loss
    calls = []

    def sometimes(self, batch):
        calls.append(1)
        return real(self, batch) * (float("nan") if len(calls) in (3, 8) else 1)

    monkeypatch.setattr(SupervisedStepper, "loss", sometimes)
    run = fit(arguments(on_nan="skip"), colours(104), colours(40))
    assert run.args()["skipped_steps"] == 2 and run.args()["eval_accuracy"] == 1.0
    assert [event["skipped"] for event in run.events()] == [1, 2, 2]
    calls[:] = [1] * 2
    with pytest.raises(FloatingPointError, match="step 1 .*loss is nan"):
        fit(arguments(overwrite_output_dir=True), colours(104), colours(40))


def test_a_full_disk_keeps_the_last_good_checkpoint(arguments, colours, fit, monkeypatch):
    from accelerate import Accelerator

    real, calls = Accelerator.save_state, []

    def full(self, folder):
        calls.append(folder)
        if len(calls) == 2:
            (RunDir(folder).path / "model.safetensors").write_bytes(b"half")
            raise OSError(28, "No space left on device")
        return real(self, folder)

    monkeypatch.setattr(Accelerator, "save_state", full)
    args = arguments(checkpointing_steps="2")
    with pytest.raises(OSError, match="step 4 could not be written.*No space left.*last good checkpoint is .*step_2"):
        fit(args, colours(104), colours(40))
    folder = RunDir(args.output_dir).path / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step_2"] and not damage(folder / "step_2")


def test_the_manifest_names_every_file(arguments, colours, fit):
    run = fit(arguments(), colours(104), colours(40))
    (last,) = [path for path in (run.path / "checkpoints").iterdir() if path.name == "step_18"]
    files = json.loads((last / "manifest.json").read_text())["files"]
    assert {"model.safetensors", "optimizer.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl"} <= set(files)


def test_auto_never_begins_anew_over_damaged_checkpoints(arguments, colours, fit):
    run = fit(arguments(checkpointing_steps="4", save_total_limit=1), colours(104), colours(40))
    (only,) = (run.path / "checkpoints").iterdir()
    (only / "optimizer.bin").write_bytes(b"")
    before = (run.path / "log.jsonl").read_text()
    with pytest.raises(ValueError, match="no checkpoint is whole.*step_16: optimizer.bin is damaged"):
        fit(arguments(checkpointing_steps="4", resume_from_checkpoint="auto"), colours(104), colours(40))
    assert (run.path / "log.jsonl").read_text() == before and (run.path / "checkpoint").exists()


def test_going_back_sets_later_checkpoints_aside(arguments, colours, fit, monkeypatch):
    from hf_vitgeo.training.checkpoints import Checkpoints

    settings = {"checkpointing_steps": "4", "save_total_limit": 1}
    straight = fit(arguments(checkpointing_steps="4", save_total_limit=9), colours(104), colours(40))
    expected = {name: value.clone() for name, value in weights(straight).items()}
    (straight.path / "args.json").write_text("{}")  # not finished
    named = arguments(**settings, resume_from_checkpoint=str(straight.path / "checkpoints/step_8"))
    with pytest.warns(UserWarning, match="the checkpoints after step_8 are now called left_step_12, left_step_16"):
        resumed = fit(named, colours(104), colours(40))
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in expected.items())
    kept = sorted(path.name for path in (resumed.path / "checkpoints").iterdir())
    assert kept == ["left_step_12", "left_step_16", "step_16"]
    (resumed.path / "checkpoints" / "step_16_mine").mkdir()  # a user's copy is none of ours
    names = [path.name for path in Checkpoints(resumed.path / "checkpoints", None, 1).all()]
    assert names == ["step_16"]


def test_a_finished_run_keeps_what_was_measured_afterwards(arguments, colours, fit):
    run = fit(arguments(checkpointing_steps="4"), colours(104), colours(40))
    run.append_results([{"metric": "ssdt", "value": 0.5, "step": 18}])
    again = fit(arguments(checkpointing_steps="4", resume_from_checkpoint="auto"), colours(104), colours(40))
    assert [row["value"] for row in again.results()] == [0.5] and again.args()["steps"] == 18


def test_a_log_that_a_crash_cut_off_is_resumed(arguments, colours, fit):
    run = fit(arguments(checkpointing_steps="4"), colours(104), colours(40))
    whole = run.events()
    (run.path / "args.json").write_text("{}")
    with open(run.path / "log.jsonl", "a") as stream:
        stream.write('{"epoch": 3, "st')
    assert run.events() == whole
    assert (
        fit(arguments(checkpointing_steps="4", resume_from_checkpoint="auto"), colours(104), colours(40)).events()
        == whole
    )


def test_a_model_that_cannot_be_written_is_named(arguments, colours, fit, monkeypatch):
    from hf_vitgeo.models import ViTGeoForImageClassification

    def full(self, folder, **kwargs):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ViTGeoForImageClassification, "save_pretrained", full)
    args = arguments()
    with pytest.raises(OSError, match=r"the model \(best\) could not be written to .*No space.*MiB are free"):
        fit(args, colours(104), colours(40))
    assert not list(RunDir(args.output_dir).path.glob(".partial_*"))


def test_workers_survive_the_signal_of_a_group():
    """Launchers signal the whole process group; torch's own handler would let the workers die."""
    from torch.utils.data import DataLoader

    from hf_vitgeo.training.checkpoints import asked_to_stop
    from hf_vitgeo.training.loaders import _leave_sigterm_to_the_loop

    loader = DataLoader(range(64), batch_size=2, num_workers=1, worker_init_fn=_leave_sigterm_to_the_loop)
    seen = []
    with asked_to_stop() as stop:
        for number, batch in enumerate(loader):
            if number == 1:
                for child in multiprocessing.active_children():
                    os.kill(child.pid, signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)
            seen += batch.tolist()
        assert stop.is_set()
    assert seen == list(range(64))
