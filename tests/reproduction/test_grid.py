"""Grids: their order, shards, refusals, failures, and that a killed one ends as an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_vitgeo.commands import reproduce
from hf_vitgeo.commands.analyze import AnalyzeArguments
from hf_vitgeo.recipes import recipe
from hf_vitgeo.reproduction import grid as grids
from hf_vitgeo.reproduction.grid import Grid, is_measured, is_trained, jobs_of, run_grid
from hf_vitgeo.reproduction.scales import CELLS, SCALES, analysis_flags, training_flags
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.command_line import parse

ROOT = Path(__file__).parents[2]


@pytest.fixture
def finished(monkeypatch):
    """Put what a run does out of the way, so that the grid alone is tried; the list has the runs in order."""
    done = []

    def finish(job, launch):
        done.append(job.name)
        if job.cell == "rope":
            raise RuntimeError("no space left on device")

    monkeypatch.setattr(grids, "_finish", finish)
    return done


@pytest.mark.parametrize(("paper", "cell"), [(paper, cell) for paper, cells in CELLS.items() for cell in cells])
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_has_a_recipe_and_valid_flags(paper, cell, scale):
    known = recipe(f"paper_{paper.lower()}_{cell}")
    assert known.source and known.command
    job = jobs_of(Grid(paper, scale, (0,), (cell,)), Path("runs/grid"))[0]
    args = parse(SupervisedArguments, job.words, "", "reproduce.py")
    assert args.seed == 0
    assert args.resume_from_checkpoint == "auto"
    AnalyzeArguments(model="runs/grid", **job.analysis)


def test_the_papers_scale_is_the_recipe():
    assert training_flags("A", "rope", "full") == {**recipe("paper_a_rope").overrides, "measure_every": 9_900}
    assert "alphas" not in analysis_flags("A", "full") and analysis_flags("B", "full")["alphas"] == []


def test_a_policy_that_would_move_the_class_is_jitter():
    assert training_flags("B", "modern", "cpu", "zh-plus/tiny-imagenet")["policy"] == "color_jitter"
    assert training_flags("B", "modern", "smoke")["policy"] == "color_jitter"
    assert training_flags("B", "modern", "cpu")["policy"] == "autoaugment_cifar10"


def test_seeds_come_one_after_the_other():
    jobs = jobs_of(Grid("A", "smoke", (0, 1), ("none", "rope")), Path("g"))
    assert [job.name for job in jobs] == ["none, seed 0", "rope, seed 0", "none, seed 1", "rope, seed 1"]
    assert jobs[3].folder == Path("g/rope/seed_1")


def test_shards_share_the_grid(finished, tmp_path):
    grid = Grid("A", "smoke", (0, 1), ("none", "learned", "sinusoidal"))
    for number in (1, 2, 3, 4):
        run_grid(grid, tmp_path, (number, 4))
    assert sorted(finished) == sorted(job.name for job in jobs_of(grid, tmp_path))


def test_a_failing_cell_is_named_and_the_others_go_on(finished, tmp_path, capsys):
    failed = run_grid(Grid("A", "smoke", (0,), ("none", "rope", "learned")), tmp_path)
    assert failed == {"rope, seed 0": "no space left on device"}
    assert finished == ["none, seed 0", "rope, seed 0", "learned, seed 0"]
    assert "rope, seed 0 failed: no space left on device" in capsys.readouterr().err


def test_a_failure_is_the_exit_status(finished, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        reproduce.main(["A", "--scale", "smoke", "--cells", "rope", "--output_dir", str(tmp_path / "g")])
    assert ended.value.code == 1
    assert "failed: rope, seed 0: no space left on device" in capsys.readouterr().out


def test_sigterm_ends_the_grid(monkeypatch, tmp_path):
    def finish(job, launch):
        raise SystemExit(143)

    monkeypatch.setattr(grids, "_finish", finish)
    with pytest.raises(SystemExit) as ended:
        run_grid(Grid("A", "smoke", (0,), ("none", "rope")), tmp_path)
    assert ended.value.code == 143


def test_a_grid_grows(finished, tmp_path):
    run_grid(Grid("A", "smoke", (1,), ("none",)), tmp_path)
    run_grid(Grid("A", "smoke", (0,), ("learned",)), tmp_path)
    plan = RunDir(tmp_path).args("grid.json")
    assert plan["seeds"] == [0, 1] and plan["cells"] == ["none", "learned"]


def test_another_grid_in_the_folder_is_refused(finished, tmp_path):
    run_grid(Grid("A", "smoke", (0,), ("none",)), tmp_path)
    with pytest.raises(ValueError, match="--scale smoke, not cpu"):
        run_grid(Grid("A", "cpu", (0,), ("none",)), tmp_path)


def test_other_arguments_in_a_folder_are_refused_before_anything_runs(finished, tmp_path):
    grid = Grid("A", "smoke", (0,), ("none", "learned"))
    job = jobs_of(grid, tmp_path)[1]
    args = parse(SupervisedArguments, job.words, "", "reproduce.py")
    RunDir(job.folder).write_args({**args.what_resume_keeps(), "learning_rate": 0.5})
    with pytest.raises(ValueError, match=r"learned.*--learning_rate was 0.5, now"):
        run_grid(grid, tmp_path)
    assert not finished


def test_what_a_left_out_flag_became_is_no_other_argument(finished, tmp_path):
    """`args.json` records the encoding that the preset has; the flag of paper B's cells is left out."""
    grid = Grid("B", "smoke", (0,), ("baseline",))
    job = jobs_of(grid, tmp_path)[0]
    args = parse(SupervisedArguments, job.words, "", "reproduce.py")
    assert args.position_encoding is None
    resolved = {"position_encoding": "learned", "permute_tokens_in_training": False}
    RunDir(job.folder).write_args({**args.what_resume_keeps(), **resolved})
    assert run_grid(grid, tmp_path) == {}
    RunDir(job.folder).write_args({**args.what_resume_keeps(), **resolved, "position_encoding": "rope"})
    with pytest.raises(ValueError, match="--position_encoding was rope, now learned"):
        run_grid(grid, tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["A", "--scale", "huge"], "--scale"),
        (["C", "--scale", "smoke"], "'C'"),
        (["A", "--scale", "smoke", "--cells", "modern"], "--cells has 'modern'; paper A has untrained, none"),
        (["A", "--scale", "smoke", "--shard", "3/2"], "--shard is '3/2'; allowed is i/n"),
        (["A", "--scale", "smoke", "--shard", "0/2"], "--shard is '0/2'"),
        (["A", "--scale", "smoke", "--seeds", "-1"], "--seeds are [-1]"),
        (["A", "--scale", "smoke", "--train_flags", "--learning_rat 1"], "--learning_rat"),
    ],
)
def test_bad_arguments_are_refused_at_once(words, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        reproduce.main([*words, "--output_dir", str(tmp_path / "g")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


def command(folder, *words):
    environment = {**os.environ, "HF_HOME": str(folder.parent / "home"), "PYTHONPATH": str(ROOT)}
    script = [sys.executable, str(ROOT / "scripts/reproduce.py")]
    return subprocess.Popen(
        [*script, *words, "--output_dir", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results_of(folder):
    return {path.relative_to(folder): path.read_text() for path in sorted(folder.rglob("results.json"))}


# Two cells and two epochs of 64 pictures: the same code, in seconds.
SHORT = ("--train_flags", "--max_train_samples 64 --max_eval_samples 64 --measure_every 2 --checkpointing_steps 1")


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "cells"), [("A", ("none", "learned_rpt")), ("B", ("baseline", "modern"))])
def test_killed_at_random_moments_it_ends_with_the_same_files(paper, cells, tmp_path):
    words = (paper, "--scale", "smoke", "--cells", *cells, *SHORT)
    started = time.monotonic()
    straight = command(tmp_path / "straight", *words)
    said = straight.communicate(timeout=300)
    assert straight.returncode == 0, said[1][-3000:]
    duration, rng, killed = time.monotonic() - started, random.Random(0), 0
    for _ in range(4):
        process = command(tmp_path / "killed", *words)
        try:
            process.wait(rng.uniform(0.3, 0.8) * duration)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
    assert killed
    process = command(tmp_path / "killed", *words)
    said = process.communicate(timeout=300)
    assert process.returncode == 0, said[1][-3000:]
    one, other = results_of(tmp_path / "straight"), results_of(tmp_path / "killed")
    assert len(one) == 2
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("paper", CELLS)
def test_smoke_takes_minutes_and_is_not_run_twice(paper, tmp_path):
    words = (paper, "--scale", "smoke", "--seeds", "0")
    started = time.monotonic()
    process = command(tmp_path / "grid", *words)
    said = process.communicate(timeout=900)
    duration = time.monotonic() - started
    assert process.returncode == 0, said[1][-3000:]
    # of this machine, as it is now: the bar of five minutes is for two quiet cores
    print(f"paper {paper} at scale smoke: {duration:.0f} s")
    for job in jobs_of(Grid(paper, "smoke", (0,), CELLS[paper]), tmp_path / "grid"):
        assert is_trained(RunDir(job.folder)) and is_measured(job), job.name
    assert "undecided at this scale" in said[0] and "report.html" in said[0]
    before = results_of(tmp_path / "grid")
    stamps = {path: (tmp_path / "grid" / path).stat().st_mtime_ns for path in before}
    again = command(tmp_path / "grid", *words)
    said = again.communicate(timeout=300)
    assert again.returncode == 0, said[1][-3000:]
    assert {path: (tmp_path / "grid" / path).stat().st_mtime_ns for path in before} == stamps
    text = (tmp_path / "grid/report.md").read_text()
    assert str(tmp_path) not in text
    assert json.loads((tmp_path / "grid/grid.json").read_text())["cells"] == list(CELLS[paper])
