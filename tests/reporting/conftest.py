import pytest

from hf_vitgeo.runs import RunDir

LAYERS, HEADS = 2, 2
#: condition -> (clean accuracy, SSDT under RPI of the last layer)
CONDITIONS = {
    "none": (0.40, 0.01),
    "learned": (0.50, 0.15),
    "sinusoidal": (0.52, 0.30),
    "rope": (0.60, 0.21),
    "learned+rpt": (0.38, -0.01),
}


def synthetic(model, accuracy, rpi, seed=0, sd=0.03, sweep=False):
    """Records of one model as the analysis writes them."""
    common = {"model": model, "dataset": "scenes", "split": "test", "seed": seed, "n_images": 200, "sample_hash": "ab"}
    interval = {"kind": "interval95", "low": accuracy - 0.03, "high": accuracy + 0.03}
    rows = [{"metric": "accuracy", "value": accuracy, "spread": interval}]
    for shift, value in (("jpeg_q5", 0.3), ("blur_s2.5_k5", 0.1)):
        band = {"kind": "interval95", "low": value - 0.05, "high": value + 0.05}
        rows.append({"metric": "accuracy", "shift": shift, "value": accuracy * (1 - value), "spread": interval})
        rows.append({"metric": "fragility", "shift": shift, "value": value, "spread": band})
        rows.append({"metric": "fragility_chance_corrected", "shift": shift, "value": value + 0.1, "spread": band})
    for layer in range(LAYERS + 1):
        spread = {"kind": "sd", "value": sd, "standard_error": sd / 4}
        null = {"kind": "interval95", "low": -0.04, "high": 0.04, "sd": 0.02}
        shuffled = {"intervention": "rpi", "n_permutations": 16}
        rows.append({"metric": "ssdt", "layer": layer, "value": 0.6})
        rows.append({"metric": "ssdt", "layer": layer, "value": rpi * layer / LAYERS, "spread": spread, **shuffled})
        rows.append(
            {"metric": "ssdt", "layer": layer, "value": 0.0, "spread": null, **shuffled} | {"intervention": "rpi_null"}
        )
    for layer in range(LAYERS):
        for head in range(HEADS):
            place = {"layer": layer, "head": head}
            rows.append({"metric": "mean_attention_distance", "value": 0.3 + 0.05 * head + 0.02 * layer, **place})
            rows.append({"metric": "attention_entropy", "value": 0.9 - 0.1 * layer, **place})
    if sweep:
        for tenth in range(0, 11, 5):
            alpha = tenth / 10
            shuffled = {"intervention": "rpi", "n_permutations": 16, "position_scale": alpha}
            rows.append(
                {"metric": "delta_ssdt", "value": 0.1 * alpha, "spread": {"kind": "sd", "value": 0.01}, **shuffled}
            )
            for shift in (None, "jpeg_q5"):
                rows.append({"metric": "accuracy", "shift": shift, "position_scale": alpha, "value": accuracy * alpha})
            missing = {"value": None, "reason": "clean accuracy is 0"} if not tenth else {"value": 0.4}
            rows.append({"metric": "fragility", "shift": "jpeg_q5", "position_scale": alpha, **missing})
    return [{**common, **row} for row in rows]


def write_run(path, model, accuracy, rpi, **options):
    run = RunDir(path)
    run.append_results(synthetic(model, accuracy, rpi, **options))
    config = {
        "hidden_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "patch_size": 4,
        "image_size": 32,
    }
    run.write_args(
        {"model": model, "dataset_name": "scenes", "num_classes": 10, "parameters": 1234, "model_config": config}
        | {
            "images_seen": 1000,
            "epochs": 3.0,
            "seed": options.get("seed", 0),
            "num_train_images": 500,
            "device": "cpu",
        }
    )
    return run.path


@pytest.fixture
def five(tmp_path):
    """The five conditions as five run folders, in which everything that the demo claims holds."""
    return [
        write_run(tmp_path / name, name, accuracy, rpi, sweep=name in ("learned", "sinusoidal"))
        for name, (accuracy, rpi) in CONDITIONS.items()
    ]
