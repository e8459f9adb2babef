"""Result files of whole grids, written as the analysis writes them, with numbers of one's choice."""

import numpy as np
import pytest

from hf_vitgeo.reporting.paper_numbers import PAPER_A_ALPHA, PAPER_A_PLAIN, PAPER_A_RPI, paper_a
from hf_vitgeo.reporting.records import BLUR, JPEG
from hf_vitgeo.runs import RunDir

CONFIG = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 2, "patch_size": 4, "image_size": 32}
LAYERS = 12


def cell_of_paper_a(name):
    """The numbers that paper A prints for a condition; what it calls a collapse is 0 here."""
    name = name if name in PAPER_A_PLAIN else "learned_rpt"  # it prints none of other RPT models
    return {
        "accuracy": paper_a(name, "accuracy") or 0.01,
        "plain": PAPER_A_PLAIN[name],
        "rpi": PAPER_A_RPI.get(name, (0.0,) * LAYERS),
        JPEG: paper_a(name, JPEG) or 0.0,
        BLUR: paper_a(name, BLUR) or 0.0,
        "alpha": PAPER_A_ALPHA.get(name, {}),
    }


def cell_of_paper_b(name):
    """A cell as paper B describes it: CutMix brings a local head, AutoAugment and CutMix accuracy."""
    cutmix = name in ("cutmix", "no_autoaugment", "no_label_smoothing", "modern")
    policy = name in ("autoaugment", "no_cutmix", "no_label_smoothing", "modern")
    return {
        "accuracy": 0.55 + 0.065 * cutmix + 0.065 * policy,
        "mad": np.linspace(0.02 if cutmix else 0.31, 0.4, LAYERS),
        "entropy": np.linspace(0.2 if cutmix else 0.7, 0.9, LAYERS),
    }


def records_of(cell, seed, numbers, noise):
    """Records of one run. `noise` is one s.d. of what a seed adds to each number."""
    rng = np.random.default_rng([seed, *cell.encode()])

    def drawn(value):
        return float(value + noise * rng.standard_normal())

    rows = [{"metric": "accuracy", "value": drawn(numbers["accuracy"])}]
    for intervention, name in ((None, "plain"), ("rpi", "rpi")):
        for layer, value in enumerate(numbers.get(name, ())):
            rows.append({"metric": "ssdt", "layer": layer, "intervention": intervention, "value": drawn(value)})
    rows += [
        {"metric": "fragility", "shift": shift, "value": drawn(numbers[shift])}
        for shift in (JPEG, BLUR)
        if shift in numbers
    ]
    for alpha, (gain, fragility) in numbers.get("alpha", {}).items():
        at = {"position_scale": alpha}
        rows.append({"metric": "delta_ssdt", "intervention": "rpi", "value": drawn(gain), **at})
        rows.append({"metric": "fragility", "shift": JPEG, "value": drawn(fragility), **at})
        rows.append({"metric": "accuracy", "value": numbers["accuracy"], **at})
    for metric, name in (("mean_attention_distance", "mad"), ("attention_entropy", "entropy")):
        for layer, value in enumerate(numbers.get(name, ())):
            rows += [
                {"metric": metric, "layer": layer, "head": head, "value": drawn(value) + 0.05 * head}
                for head in (0, 1)
            ]
    common = {"model": cell, "dataset": "synthetic", "split": "test", "seed": seed, "n_images": 100}
    return [{**common, **row} for row in rows]


@pytest.fixture
def write_grid(tmp_path):
    """Write the folder of a grid: the papers' own numbers, with changes by cell."""

    def write(paper, cells, seeds=(0, 1, 2), noise=0.001, changes=(), name="grid"):
        root = tmp_path / name
        plan = {"paper": paper, "scale": "cpu", "seeds": list(seeds), "cells": list(cells)}
        RunDir(root).write_args({**plan, "dataset_name": None, "train_flags": ""}, "grid.json")
        for cell in cells:
            for seed in seeds:
                run = RunDir(root / cell / f"seed_{seed}")
                numbers = {
                    **(cell_of_paper_a if paper == "A" else cell_of_paper_b)(cell),
                    **dict(changes).get(cell, {}),
                }
                run.append_results(records_of(cell, seed, numbers, noise))
                about = {"model": cell, "seed": seed, "dataset_name": "synthetic", "model_config": CONFIG, "steps": 10}
                scale = {"images_seen": 1000, "num_train_images": 500, "parameters": 1234, "seconds": 3.0}
                run.write_args({**about, **scale, "mixed_precision": "no", "device": "cpu"})
                run.write_args({"model": str(run.path)}, "analysis.json")
        return root

    return write
