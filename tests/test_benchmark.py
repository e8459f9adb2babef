"""The benchmark measures what it says, and needs neither datasets nor evaluate."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hf_vitgeo.commands import benchmark
from hf_vitgeo.commands.benchmark_cases import GROUPS, Case

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
# Any import of these fails, as where they are not installed.
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("datasets", "evaluate"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(code, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *words], env=environment, capture_output=True, text=True, timeout=1500
    )


def test_ratios_are_those_of_the_rounds():
    calls = {"slow": lambda: time.sleep(0.02), "fast": lambda: time.sleep(0.005)}
    slow, fast = benchmark.measure(Case("naps", calls, "slow", images=10, flop=1e6), 3, CPU, peak=1.0)
    assert slow["ratio"] == slow["ratio_low"] == slow["ratio_high"] == 1
    assert 0.1 < fast["ratio_low"] <= fast["ratio"] <= fast["ratio_high"] < 0.9
    assert fast["images_per_second"] == pytest.approx(10 / (fast["ms"] / 1000))
    assert fast["utilisation"] == pytest.approx(1e6 / (fast["ms"] / 1000) / 1e9)
    assert "slow" in benchmark.table_rows([fast])[0]


def test_memory_is_what_a_call_takes():
    grown = benchmark.peak_growth(lambda: (np.ones(2**24), np.ones(2**24)))  # 128 MiB each
    assert 200 < grown < 320


def test_the_files(tmp_path, monkeypatch, capsys):
    case = Case("sums", {"one": lambda: sum(range(1000)), "two": lambda: sum(range(2000))}, "one")
    monkeypatch.setitem(GROUPS, "ssdt", lambda device, compiled: iter([case]))
    benchmark.main(["--only", "ssdt", "--repeats", "2", "--output", str(tmp_path)])
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert [row["way"] for row in found["rows"]] == ["one", "two"]
    assert found["machine"]["matmul_peak_gflops"] > 0 and found["machine"]["torch"] == torch.__version__
    assert "| sums | two | one |" in (tmp_path / "benchmark.md").read_text()
    assert "| sums | two | one |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"), [(["--repeats", "0"], "--repeats is 0"), (["--only", "everything"], "everything")]
)
def test_bad_arguments(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_every_group_is_made_without_datasets_and_evaluate():
    done = run("""
import torch
from hf_vitgeo.commands.benchmark_cases import GROUPS
for name, make in GROUPS.items():
    case = next(make(torch.device("cpu"), False))
    assert case.reference in case.calls and len(case.calls) > 1, name
""")
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_ways_of_an_analysis_agree():
    """What is timed against each other finds the same numbers."""
    case = next(GROUPS["recording"](CPU, False))
    stored, streamed = (case.calls[name]() for name in ("stored maps, then numpy", "ours, streamed"))
    distance, entropy = (np.stack(each) for each in zip(*stored, strict=True))
    np.testing.assert_allclose(streamed["mean_attention_distance"], distance, atol=1e-5)
    np.testing.assert_allclose(streamed["attention_entropy"], entropy, atol=1e-5)


@pytest.mark.slow
def test_all_of_it_runs_without_datasets_and_evaluate(tmp_path):
    words = ("--repeats", "1", "--no_compile", "--output", str(tmp_path))
    done = run("from hf_vitgeo.commands.benchmark import main\nmain(sys.argv[1:])", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads((tmp_path / "benchmark.json").read_text())["rows"]
    ways = {row["way"] for row in rows}
    assert {"ours, streamed", "ours, bf16", "plain loop, float32", "the entmax package", "entmax_bisect"} <= ways
