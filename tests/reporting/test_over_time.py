import pytest

from hf_vitgeo.reporting.over_time import min_mad_by_step, over_time
from hf_vitgeo.reporting.plots import NothingMeasured
from hf_vitgeo.runs import RunDir


def write(path, model, steps):
    run = RunDir(path)
    run.write_args({"model": model})
    rows = []
    for step in steps:
        for layer in range(2):
            for head in range(2):
                value = 0.4 - 0.001 * step - 0.01 * head
                rows.append({"metric": "mean_attention_distance", "layer": layer, "head": head, "value": value})
                rows[-1] |= {"model": model, "step": step}
        spread = {"kind": "sd", "value": 0.02, "standard_error": 0.01}
        for layer in range(3):
            rows.append({"metric": "ssdt", "layer": layer, "intervention": "rpi", "value": 0.001 * step * layer})
            rows[-1] |= {"model": model, "step": step, "spread": spread}
        run.log(epoch=step // 10, step=step, loss=1.0, accuracy=0.1 + 0.01 * step)
    run.append_results(rows)
    return path


def test_the_minimum_is_over_all_heads(tmp_path):
    found = min_mad_by_step(RunDir(write(tmp_path / "a", "learned", [0, 10, 20])).results())
    assert list(found) == [0, 10, 20] and found[20] == pytest.approx(0.37)


def test_three_panels_against_the_step(tmp_path):
    runs = [write(tmp_path / "a", "learned", [0, 10, 20]), write(tmp_path / "b", "rope", [0, 10])]
    runs.append(write(tmp_path / "c", "none", [20]))  # measured once: left out
    fig = over_time(runs)
    accuracy, distance, structure = fig.axes
    assert [len(ax.get_lines()) for ax in (accuracy, distance)] == [2, 2]
    assert distance.get_lines()[0].get_ydata()[-1] == pytest.approx(0.37)
    assert structure.get_lines()[0].get_ydata()[-1] == pytest.approx(0.04)  # the last layer
    assert all(ax.get_xlabel() == "optimiser step" and ax.get_ylabel() for ax in fig.axes)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["learned", "rope"]


def test_one_step_is_no_course(tmp_path):
    with pytest.raises(NothingMeasured, match="--measure_every"):
        over_time([write(tmp_path / "a", "learned", [5])])
