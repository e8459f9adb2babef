"""From pictures to a report through the commands, on a small scale and in new processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hf_vitgeo.commands import demo

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run_script(tmp_path):
    def run(name, *words, status=0):
        environment = {
            **os.environ,
            "HF_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / name), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stdout + done.stderr[-3000:]
        return done

    return run


SMALL = ["--preset", "tiny", "--num_train_epochs", "1", "--num_warmup_epochs", "0.2"]
SMALL += ["--per_device_train_batch_size", "32", "--max_train_samples", "128", "--max_eval_samples", "64"]
FEW = ["--n_images", "32", "--n_permutations", "3", "--alpha_images", "16", "--max_eval_samples", "64"]


def test_from_pictures_to_a_report(run_script, tmp_path):
    said = run_script("train_supervised.py", "--output_dir", "runs/a", "--position_encoding", "sinusoidal", *SMALL)
    assert "sinusoidal: accuracy" in said.stdout and "4/4" in said.stderr
    said = run_script("analyze.py", "runs/a", "--alphas", "0", "1", *FEW)
    assert said.stdout.startswith("sinusoidal: ") and "SSDT under RPI" in said.stdout
    rows = json.loads((tmp_path / "runs/a/results.json").read_text())
    assert {row["dataset"] for row in rows} == {"scenes"} and {row["seed"] for row in rows} == {0}
    before = len(rows)
    run_script("analyze.py", "--model", "runs/a", "--alphas", "0", "1", *FEW)
    assert len(json.loads((tmp_path / "runs/a/results.json").read_text())) == before
    run_script("report.py", "runs/a", "--output", "page.html", "--title", "One model")
    assert "One model" in (tmp_path / "page.html").read_text()
    # a checkpoint by itself, on a local folder of pictures
    folder = tmp_path / "pictures" / "test"
    from PIL import Image

    for number in range(4):
        (folder / str(number % 2)).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (60 * number, 0, 0)).save(folder / str(number % 2) / f"{number}.png")
    few = [*FEW, "--dataset_name", "pictures", "--alphas", "1"]
    failed = run_script("analyze.py", "runs/a/checkpoint", *few, status=1)
    assert failed.stderr.splitlines()[-1].startswith("analyze.py: ") and "--output_dir" in failed.stderr
    run_script("analyze.py", "runs/a/checkpoint", "--output_dir", "runs/b", *few)
    rows = json.loads((tmp_path / "runs/b/results.json").read_text())
    assert {(row["dataset"], row["model"]) for row in rows} == {("pictures", "checkpoint")}
    # its classes are none of the model's: structure is measured, accuracy has no meaning
    unknown = [row for row in rows if row["metric"] in ("accuracy", "fragility")]
    assert unknown and all(row["value"] is None and "none of the model's" in row["reason"] for row in unknown)
    assert any(row["metric"] == "ssdt" and row["value"] is not None for row in rows)
    asked = json.loads((tmp_path / "runs/b/analysis.json").read_text())
    assert (asked["n_images"], asked["dataset_name"]) == (32, "pictures")
    for words in (["--attacks", "fgsm"], ["--attacks", "pgd_e2"], ["--shifts", "jpeg"], ["--alphas", "-1"]):
        failed = run_script("analyze.py", "runs/a", *words, status=2)
        assert words[1] in failed.stderr.splitlines()[-1], failed.stderr
    # a folder that is in use is refused before torch is imported, and begun anew when asked
    failed = run_script("train_supervised.py", "--output_dir", "runs/a", *SMALL, status=1)
    assert failed.stderr.count("\n") == 1 and "--overwrite_output_dir" in failed.stderr


def test_training_measures_itself_goes_on_and_streams(run_script, tmp_path):
    """`--measure_every`, a second training from the checkpoint on a stream, and their common report."""
    measured = ["--measure_every", "2", "--measure_images", "16", "--measure_permutations", "2"]
    run_script("train_supervised.py", "--output_dir", "runs/a", *SMALL, *measured, "--cutmix_probability", "1")
    rows = json.loads((tmp_path / "runs/a/results.json").read_text())
    assert {row["step"] for row in rows} == {0, 2, 4}
    assert {row["metric"] for row in rows} >= {"ssdt", "mean_attention_distance", "attention_entropy", "accuracy"}
    import datasets

    from hf_vitgeo.data import scenes

    names = list(scenes.CLASS_NAMES)
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=names)})
    for split, count in (("train", 96), ("test", 40)):
        found = scenes.render(split, 32, range(count))
        table = {"picture": list(found["image"]), "kind": found["label"].tolist()}
        datasets.Dataset.from_dict(table, features=features).to_parquet(tmp_path / f"pack/{split}.parquet")
    more = ["--dataset_name", "pack", "--streaming", "--num_train_epochs", "1", "--num_warmup_epochs", "0.2"]
    more += ["--per_device_train_batch_size", "32", "--measure_every", "2", "--measure_permutations", "2"]
    more += ["--model_name_or_path", "runs/a/checkpoint", "--model_label", "further", "--crop", "none"]
    said = run_script("train_supervised.py", "--output_dir", "runs/b", "--max_train_steps", "4", *more)
    assert "further: accuracy" in said.stdout
    facts = json.loads((tmp_path / "runs/b/args.json").read_text())
    assert facts["steps"] == 4 and facts["position_encoding"] == "learned"
    run_script("report.py", "runs/a", "runs/b")
    assert "How did it get there?" in (tmp_path / "runs/a/report.html").read_text()


@pytest.mark.filterwarnings("ignore:the clean accuracy:UserWarning", "ignore:SSDT is nan:UserWarning")
def test_the_demo_says_its_verdicts(tmp_path, monkeypatch, capsys):
    """The whole demonstration with tiny numbers: it misses its claims, prints the true verdicts and succeeds."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(demo, "MODEL", {"preset": "tiny", "num_hidden_layers": 1, "pooling": "mean"})
    small = {"max_train_samples": 64, "max_eval_samples": 40, "num_train_epochs": 1, "num_warmup_epochs": 0.5}
    monkeypatch.setattr(demo, "BUDGET", {**small, "per_device_train_batch_size": 32})
    monkeypatch.setattr(demo, "ANALYSIS", {"n_images": 20, "n_permutations": 4, "alpha_images": 10, "alphas": [0, 1]})
    demo.main(["--output_dir", str(tmp_path / "demo"), "--seed", "1"])
    demo.main(["--output_dir", str(tmp_path / "demo")])  # nothing of the other seed is left
    said = capsys.readouterr().out
    assert "NO   every model is above 3 times chance" in said
    last = said.strip().splitlines()[-5:]
    assert [line.split(":")[0] for line in last] == list(demo.CONDITIONS)
    rows = json.loads((tmp_path / "demo/results.json").read_text())
    assert {row["model"] for row in rows} == set(demo.CONDITIONS) and {row["seed"] for row in rows} == {0}
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"report.html", "figures", "rope", "args.json"}


def test_an_impossible_value_is_refused_before_torch(run_script):
    failed = run_script("demo.py", "--seed", "one", status=2)
    assert "one" in failed.stderr
    failed = run_script("analyze.py", "runs/a", "--shifts", "jpeg5", status=2)
    assert "unknown shift 'jpeg5'" in failed.stderr


def test_from_pictures_to_a_probe(run_script, tmp_path):
    """A pre-training, its log and records, then both probes; the second time features come from their file."""
    words = (
        "--output_dir runs/d --preset tiny --local_crop_size 16 --num_local_crops 2 --out_dim 32 --head_hidden_dim 16"
    )
    words += " --head_bottleneck_dim 8 --max_train_samples 64 --max_eval_samples 32 --num_train_epochs 1"
    words += " --num_warmup_epochs 0.2 --per_device_train_batch_size 16 --measure_every 4 --measure_images 16"
    words += " --measure_permutations 2 --knn_train_images 64 --knn_eval_images 32"
    said = run_script("train_dino.py", *words.split())
    assert "cls baseline: loss" in said.stdout and "4/4" in said.stderr
    rows = json.loads((tmp_path / "runs/d/results.json").read_text())
    over_time = [row for row in rows if row["metric"] == "knn_accuracy"]
    assert [row["step"] for row in over_time] == [0, 4] and {row["n_images"] for row in over_time} == {32}
    assert {"ssdt", "mean_attention_distance", "attention_support"} <= {row["metric"] for row in rows}
    probe = "runs/d --task knn linear --num_blocks 2 --average_pool --k 5 10 --max_train_samples 64 --linear_epochs 3"
    said = run_script("probe.py", *probe.split())
    assert "features: 100%" in said.stderr and "linear_accuracy  raw_pixels" in said.stdout
    found = [row for row in json.loads((tmp_path / "runs/d/results.json").read_text()) if row["probe"]]
    found = [row for row in found if row["step"] == 4 and row["dataset"] == "scenes" and row["n_images"] > 32]
    by = {(row["metric"], row["intervention"], row["probe"].split(",")[0]) for row in found}
    assert len(by) == 9 and ("knn_accuracy", "random_weights", "k=10") in by
    files = sorted((tmp_path / "runs/d/arrays").glob("features_*.npy"))
    assert len(files) == 2 and sorted(len(np.load(path)) for path in files)[0] == 64
    written = [path.stat().st_mtime_ns for path in files]
    assert run_script("probe.py", *probe.split()).stdout == said.stdout
    assert [path.stat().st_mtime_ns for path in files] == written
    assert "--k is 200" in run_script("probe.py", "runs/d", "--max_train_samples", "64", status=1).stderr
    assert "has 2 blocks" in run_script("probe.py", "runs/d", "--task", "linear", "--k", "5", status=1).stderr
    assert "--task is 'segment'" in run_script("probe.py", "runs/d", "--task", "segment", status=2).stderr
    said = run_script("train_dino.py", "--recipe", "paper_b_modern", status=2).stderr
    assert "--recipe paper_b_modern is one of scripts/train_supervised.py" in said


@pytest.mark.slow
def test_the_dino_smoke_recipe(run_script, tmp_path):
    """It takes 2 minutes at most on two cores; the machine that runs this may be busy, so the time is only printed."""
    started = time.perf_counter()
    run_script("train_dino.py", "--recipe", "dino_smoke", "--output_dir", "runs/smoke")
    print(f"dino_smoke took {time.perf_counter() - started:.0f} s")
    events = [json.loads(line) for line in (tmp_path / "runs/smoke/log.jsonl").read_text().splitlines()]
    assert len(events) == 3 and all(event["collapse"] is None for event in events)
    assert events[-1]["kl"] > 0 and 0 < events[-1]["teacher_entropy"] < 6.93


@pytest.mark.slow
@pytest.mark.parametrize("task", ["segmentation", "depth"])
def test_dense_probes_of_scenes(run_script, tmp_path, task):
    """Both heads on rendered scenes, for two layers, with and without [CLS], beside random weights."""
    run_script("train_supervised.py", "--output_dir", "runs/a", *SMALL)
    words = f"runs/a --task {task} --dataset_name scenes --layers 1 last --max_train_samples 24 --max_eval_samples 8"
    said = run_script("probe.py", *words.split())
    rows = [row for row in json.loads((tmp_path / "runs/a/results.json").read_text()) if row["probe"]]
    metrics = {"segmentation": {"miou", "pixel_accuracy"}, "depth": {"rmse", "rmse_pooled", "abs_rel", "log_rmse"}}
    assert metrics[task] <= {row["metric"] for row in rows}
    by = {(row["layer"], row["probe"], row["intervention"]) for row in rows}
    assert len(by) == 8 and {layer for layer, *_ in by} == {1, 2}
    assert all(row["n_images"] == 8 for row in rows) and "layer 2, quick, patches and [CLS]" in said.stdout
    with np.load(tmp_path / f"runs/a/arrays/{task}_predictions.npz") as kept:
        assert kept["truth_5"].shape == kept["with_cls_5"].shape == kept["image_5"].shape[:2] == (64, 64)
    assert not list((tmp_path / "runs/a").glob(".partial*"))
    mixed = run_script("probe.py", "runs/a", "--task", "knn", task, status=2)
    assert "need other data than the rest" in mixed.stderr
    far = run_script("probe.py", *words.split(), "--layers", "3", status=1)
    assert "layers are (3,); the model has 1 to 2" in far.stderr
