"""The measures as `evaluate` modules: what they compute, what they re-export, and that they load anywhere."""

import doctest
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_vitgeo import metrics

ROOT = Path(metrics.__file__).parent
CLASSES = {"ssdt": "SSDT", "mad": "MeanAttentionDistance", "fragility": "Fragility", "point_in_box": "PointInBox"}
FILES = ["README.md", "__init__.py", "pure.py", "requirements.txt"]


def module(name):
    return importlib.import_module(f"hf_vitgeo.metrics.{name}.{name}")


@pytest.fixture
def build(tmp_path):
    """Make a measurement that keeps its files in the test's folder."""
    return lambda name: getattr(module(name), CLASSES[name])(cache_dir=str(tmp_path))


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_function_beside_the_class_is_offered_again(name):
    folder = Path(module(name).__file__).parent
    public = {}
    for path in folder.glob("*.py"):
        if path.stem not in ("__init__", name):
            sibling = importlib.import_module(f"hf_vitgeo.metrics.{name}.{path.stem}")
            own = {
                key: value
                for key, value in vars(sibling).items()
                if getattr(value, "__module__", "") == sibling.__name__
            }
            public |= {key: value for key, value in own.items() if not key.startswith("_")}
    assert {*public, CLASSES[name]} == set(module(name).__all__)
    assert all(getattr(module(name), key) is value for key, value in public.items())


@pytest.mark.parametrize("name", CLASSES)
def test_docstring_examples(name, build):
    names = vars(module(name)) | {CLASSES[name]: lambda: build(name)}
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(module(name)._KWARGS_DESCRIPTION, names, name, None, 0))
    assert runner.tries >= 3 and runner.failures == 0


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, lambda values: values.tolist()])
def test_ssdt_module(build, kind):
    batch = np.stack([np.corrcoef(np.random.default_rng(seed).random((6, 4))) for seed in range(3)])
    expected = module("ssdt").ssdt(batch, (2, 3), "euclidean")
    result = build("ssdt").compute(similarity=kind(batch), grid_size=(2, 3), distance="euclidean")
    assert result["ssdt_per_matrix"] == pytest.approx(expected.tolist(), abs=1e-12)
    assert result["ssdt"] == pytest.approx(expected.mean(), abs=1e-12)
    with pytest.raises(ValueError, match="3x3"):
        build("ssdt").compute(similarity=kind(batch), grid_size=(3, 3))


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, lambda values: values.tolist()])
def test_mad_module(build, kind):
    maps = np.random.default_rng(0).dirichlet(np.ones(7), size=(4, 7))
    one_by_one = build("mad")
    one_by_one.add_batch(attentions=kind(maps[:3]))
    one_by_one.add_batch(attentions=kind(maps[3:]))
    result = one_by_one.compute(grid_size=(2, 3), num_prefix_tokens=1)
    rows = module("mad").attention_rows(maps, (2, 3), 1)
    assert result.keys() == rows.keys()
    for name, value in result.items():
        assert type(value) is float and value == pytest.approx(rows[name].mean(), abs=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, lambda values: values.tolist()])
@pytest.mark.parametrize("dtype", [bool, int])
def test_fragility_module(build, kind, dtype):
    clean = np.repeat([1, 1, 0, 0], [50, 30, 5, 15]).astype(dtype)
    shift = np.repeat([1, 0, 1, 0], [50, 30, 5, 15]).astype(dtype)
    # Accuracy counts images, so batches of unequal size must not weigh alike.
    metric = build("fragility")
    metric.add_batch(correct_clean=kind(clean[:90]), correct_shift=kind(shift[:90]))
    metric.add_batch(correct_clean=kind(clean[90:]), correct_shift=kind(shift[90:]))
    result = metric.compute(chance=0.1, n_resamples=200, seed=2)
    assert (result["accuracy_clean"], result["accuracy_shift"]) == (0.8, 0.55)
    assert result["fragility"] == pytest.approx(1 - 0.55 / 0.8, abs=1e-12)
    assert result["fragility_chance_corrected"] == pytest.approx(1 - 0.45 / 0.7, abs=1e-12)
    interval = module("fragility").fragility_interval
    assert (result["fragility_low"], result["fragility_high"]) == interval(clean, shift, 200, seed=2)
    corrected = result["fragility_chance_corrected_low"], result["fragility_chance_corrected_high"]
    assert corrected == interval(clean, shift, 200, seed=2, chance=0.1)
    without = build("fragility").compute(correct_clean=kind(clean), correct_shift=kind(shift))
    assert not [name for name in without if "chance" in name]


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, lambda values: values.tolist()])
def test_point_in_box_module(build, kind):
    scores = np.random.default_rng(0).random((6, 4, 4))
    boxes = [[[10.0, 20.0, 90.0, 80.0]]] * 5 + [[[0.0, 0.0, 9.0, 9.0], [50.0, 50.0, 60.0, 60.0]]]
    sizes = np.array([[100, 120]] * 6)
    metric = build("point_in_box")
    metric.add_batch(scores=kind(scores[:4]), boxes=boxes[:4], image_sizes=kind(sizes[:4]))
    metric.add_batch(scores=kind(scores[4:]), boxes=boxes[4:], image_sizes=kind(sizes[4:]))
    result = metric.compute()
    assert result["point_in_box"] == module("point_in_box").point_in_box(scores, boxes, sizes)
    assert (result["n_images"], result["n_left_out"]) == (5, 1)


#: What a process with no network does with each module: load it by its folder, then run the examples of its card.
LOAD_AND_RUN = """
import os, re, socket, sys
from pathlib import Path

def refuse(*args):
    raise AssertionError(f"the network was asked for {args[-1]}")

socket.socket.connect = socket.getaddrinfo = refuse
import evaluate
folder, package = Path(sys.argv[1]), Path(sys.argv[2])
for name, class_name in CLASSES.items():
    module = evaluate.load(str(folder / name))
    assert type(module).__name__ == class_name and "evaluate_modules" in type(module).__module__, type(module)
    os.chdir(package)
    for example in re.findall(r"```python\\n(.*?)```", (folder / name / "README.md").read_text("utf-8"), re.S):
        exec(example, {})
    os.chdir("/")
"""


def test_modules_load_by_folder_offline_read_only_and_twice_at_once(tmp_path):
    folder = tmp_path / "modules"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(path for path in folder.rglob("*"))
    for path in [*before, folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    home = tmp_path / "home"
    home.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_", "XDG_"))}
    offline = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    package = ROOT.parents[1]
    command = [sys.executable, "-c", f"CLASSES = {CLASSES}\n{LOAD_AND_RUN}", str(folder), str(package)]
    environment = kept | offline | {"PYTHONPATH": str(package)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen(command, cwd="/", env=environment, **pipes) for _ in range(2)]
    try:
        for process in processes:
            output = process.communicate(timeout=240)[0]
            assert process.returncode == 0, output
            assert "'ssdt_per_matrix': [1.0, -1.0]" in output and "0.417848 1.0" in output and "0.8 0.4 0.5" in output
    finally:
        for process in processes:
            process.kill()
        folder.chmod(0o755)
        for path in before:
            path.chmod(0o755)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", CLASSES)
def test_module_folder_is_a_space(name):
    for file in [*FILES, f"{name}.py"]:
        assert (ROOT / name / file).is_file()
    card = (ROOT / name / "README.md").read_text("utf-8")
    front, body = card.removeprefix("---\n").split("\n---\n", 1)
    kind = "metric" if name in ("fragility", "point_in_box") else "measurement"
    for line in ("sdk: gradio", "sdk_version: 6.31.0", "app_file: app.py", "license: apache-2.0", f"- {kind}"):
        assert line in front.splitlines()
    headings = ["Description", "How to use", "Inputs", "Output values", "Limitations", "Citation"]
    assert [line[3:] for line in body.splitlines() if line.startswith("## ")] == headings
    assert "### Values from papers" in body
