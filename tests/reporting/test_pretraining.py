import math

import pytest

from hf_vitgeo.reporting.over_time import over_time
from hf_vitgeo.reporting.plots import NothingMeasured
from hf_vitgeo.reporting.pretraining import pretraining
from hf_vitgeo.reporting.records import load_runs
from hf_vitgeo.reporting.report import build_report
from hf_vitgeo.reporting.tables import probe_table
from hf_vitgeo.runs import RunDir


def write(path, model, entropy=0.5, controls=True):
    run = RunDir(path)
    run.write_args({"model": model, "out_dim": 64})
    rows = []
    for step in (0, 10, 20):
        common = {"model": model, "step": step, "sample_hash": "ab", "n_images": 16}
        for layer in range(2):
            for head in range(2):
                place = {"layer": layer, "head": head, **common}
                rows.append({"metric": "mean_attention_distance", "value": 0.4 - 0.01 * head, **place})
                rows.append({"metric": "attention_support", "value": 1 - 0.1 * head, **place})
        rows += [
            {"metric": "ssdt", "layer": layer, "intervention": "rpi", "value": 0.01 * step * layer, **common}
            for layer in range(3)
        ]
        knn = {"metric": "knn_accuracy", "probe": "k=20, temperature=0.07", "value": 0.2 + 0.01 * step}
        spread = {"kind": "interval95", "low": 0.1, "high": 0.5}
        rows.append({**knn, "model": model, "step": step, "sample_hash": "cd", "n_images": 200, "spread": spread})
        if step:
            run.log(epoch=step // 10 - 1, step=step, loss=3.0, kl=0.5, teacher_entropy=entropy * math.log(64))
    # the probe at the end: more pictures, several k, controls
    for control, value in ((None, 0.45), ("random_weights", 0.25), ("raw_pixels", 0.3))[: 3 if controls else 1]:
        for k in (10, 20):
            found = {"metric": "knn_accuracy", "probe": f"k={k}, temperature=0.07", "value": value + k / 1000}
            found |= {"intervention": control, "model": model, "step": 20, "n_images": 1000, "spread": spread}
            rows.append(found)
    run.append_results(rows)
    return path


def test_six_panels_against_the_step(tmp_path):
    runs = [write(tmp_path / "a", "cls baseline"), write(tmp_path / "b", "entmax15", entropy=0.25)]
    fig = pretraining(runs)
    entropy, kl, knn, structure, distance, support = fig.axes
    assert list(entropy.get_lines()[1].get_ydata()) == pytest.approx([0.25, 0.25])
    assert list(knn.get_lines()[0].get_xdata()) == [0, 10, 20]
    assert list(knn.get_lines()[0].get_ydata()) == pytest.approx([0.2, 0.3, 0.4])  # not the probe with more pictures
    assert structure.get_lines()[0].get_ydata()[-1] == pytest.approx(0.4)
    assert distance.get_lines()[0].get_ydata()[0] == pytest.approx(0.39)
    assert support.get_lines()[0].get_ydata()[0] == pytest.approx(0.95)
    assert kl.get_ylabel().endswith("(nats)") and all(ax.get_xlabel() == "optimiser step" for ax in fig.axes)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["cls baseline", "entmax15"]
    with pytest.raises(NothingMeasured):  # there is no accuracy to draw
        over_time(runs)


def test_a_supervised_run_is_left_out(tmp_path):
    RunDir(tmp_path).log(epoch=0, step=5, loss=1.0, accuracy=0.5)
    with pytest.raises(NothingMeasured, match="no run has a teacher"):
        pretraining([tmp_path])


def test_probes_stand_beside_what_they_must_beat(tmp_path):
    runs = [write(tmp_path / "a", "cls baseline"), write(tmp_path / "b", "entmax15", controls=False)]
    first, second = probe_table(load_runs(runs)[0])
    assert first["k-NN"] == ".47 [.10, .50]" and first["k-NN, random weights"] == ".27 [.10, .50]"
    assert first["k-NN, raw pixels"].startswith(".32") and first["linear"] == "–"
    assert second["k-NN, raw pixels"] == "–"
    page = build_report(runs, tmp_path / "report.html").read_text()
    assert "What a frozen backbone knows" in page and "How did pre-training go?" in page
    assert (tmp_path / "figures" / "pretraining.png").stat().st_size > 10_000
