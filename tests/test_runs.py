import json

import numpy as np
import pytest
import torch

from hf_vitgeo.runs import FIELDS, RunDir


def strict(text):
    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def test_numbers_stay_numbers(tmp_path):
    run = RunDir(tmp_path / "run")
    common = {"layer": np.int64(3), "dataset": "scenes", "intervention": "rpi", "n_images": np.int32(100)}
    run.append_results(
        [
            {**common, "metric": "ssdt", "value": np.float32(0.5)},
            {**common, "metric": "attention_entropy", "value": torch.tensor(0.25)},
            {**common, "metric": "fragility", "value": float("nan")},
            {**common, "metric": "accuracy", "value": 1, "spread": {"kind": "sd", "value": np.float64("inf")}},
        ]
    )
    rows = strict((tmp_path / "run" / "results.json").read_text())
    assert [row["value"] for row in rows] == [0.5, 0.25, None, 1]
    assert rows[2]["reason"] == "not a finite number"
    assert rows[3]["spread"] == {"kind": "sd", "value": None}
    assert type(rows[0]["layer"]) is int and rows[0]["n_images"] == 100
    assert list(rows[0]) == list(FIELDS)


def test_measuring_again_replaces(tmp_path):
    run = RunDir(tmp_path)
    run.append_results([{"metric": "ssdt", "layer": 0, "value": 0.1}, {"metric": "ssdt", "layer": 1, "value": 0.2}])
    run.append_results([{"metric": "ssdt", "layer": 0, "value": 0.3, "n_images": 5}])
    assert [(row["layer"], row["value"]) for row in run.results()] == [(0, 0.3), (1, 0.2)]
    run.append_results([{"metric": "ssdt", "layer": 0, "value": value} for value in (0.4, 0.5)])
    assert [(row["layer"], row["value"]) for row in run.results()] == [(0, 0.4), (0, 0.5), (1, 0.2)]
    run.append_results([{"metric": "ssdt", "layer": 0, "value": 0.6}])
    assert [(row["layer"], row["value"]) for row in run.results()] == [(0, 0.6), (1, 0.2)]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"metric": "ssdt", "value": 1, "heads": 3}, "heads"),
        ({"value": 1}, "needs a metric"),
        ({"metric": "ssdt", "value": "0.5"}, "not a number"),
        ({"metric": "ssdt", "value": True}, "not a number"),
        ({"metric": "ssdt", "value": [1, 2]}, "not a number"),
    ],
)
def test_bad_records_leave_the_file_as_it_was(tmp_path, record, words):
    run = RunDir(tmp_path)
    run.append_results([{"metric": "ssdt", "value": 1}])
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(ValueError, match=words):
        run.append_results([{"metric": "accuracy", "value": 0.5}, record])
    with pytest.raises(TypeError, match="object"):
        run.append_results([{"metric": "accuracy", "value": object()}])
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_crash_while_writing_leaves_the_file_whole(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    run.append_results([{"metric": "ssdt", "value": 1}])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hf_vitgeo.runs.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        run.append_results([{"metric": "accuracy", "value": 0.5}])
    assert [row["metric"] for row in run.results()] == ["ssdt"]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_arrays_and_log(tmp_path):
    run = RunDir(tmp_path)
    run.save_arrays("maps", a=np.arange(3))
    assert run.load_arrays("maps")["a"].tolist() == [0, 1, 2]
    run.log(step=1, loss=np.float32(0.5))
    run.log(step=2, loss=float("nan"))
    assert run.events() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]


def test_args_say_where_a_run_comes_from(tmp_path):
    run = RunDir(tmp_path)
    run.write_args({"seed": 3, "path": tmp_path})
    assert run.args()["seed"] == 3 and run.args()["environment"]["versions"]["transformers"]


def test_run_dir_is_not_made_by_reading(tmp_path):
    run = RunDir(tmp_path / "nothing")
    assert run.args() == {} and run.results() == [] and run.events() == [] and not run.path.exists()
