import json
import warnings

import pytest

from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification, ViTGeoModel
from hf_vitgeo.models.layers import drop_path_rate
from hf_vitgeo.models.presets import PRESETS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position_encoding": "rotary"}, ("position_encoding", "rotary", "rope")),
        ({"attention_probs_function": "sparsemax"}, ("attention_probs_function", "sparsemax", "entmax15")),
        ({"hidden_size": 0}, ("hidden_size", "0", "at least 1")),
        ({"num_register_tokens": -1}, ("num_register_tokens", "-1", "at least 0")),
        ({"drop_path_rate": 1}, ("drop_path_rate", "1", "not including, 1")),
        ({"hidden_dropout_prob": -0.1}, ("hidden_dropout_prob", "-0.1")),
        ({"position_scale": -1}, ("position_scale", "-1", "at least 0")),
        ({"position_scale": float("nan")}, ("position_scale", "nan")),
        ({"position_init_std": float("inf")}, ("position_init_std", "inf")),
        ({"rope_theta": 0}, ("rope_theta", "0", "above 0")),
        ({"image_size": (32, 30)}, ("image_size", "width", "30", "patch", "4")),
        ({"image_size": (32, 32, 3)}, ("image_size", "length 2")),
        ({"num_attention_heads": 5}, ("hidden_size", "32", "num_attention_heads", "5")),
        ({"position_encoding": "rope", "hidden_size": 24}, ("rope", "divisible by 4", "24 / 4 = 6")),
        ({"position_encoding": "sinusoidal", "hidden_size": 30, "num_attention_heads": 3}, ("sinusoidal", "30")),
        ({"position_encoding": "rope", "position_scale": 0.5}, ("position_scale", "0.5", "rope", "learned")),
        ({"position_encoding": "none", "position_scale": 0.5}, ("position_scale", "0.5", "none")),
        ({"use_cls_token": False}, ("pooling", "use_cls_token", "mean")),
        (
            {"use_cls_token": False, "pooling": "mean", "token_specialization": "norm"},
            ("token_specialization", "norm", "use_cls_token"),
        ),
        ({"entmax_alpha": 1.25}, ("entmax_alpha", "1.25", "entmax")),
        ({"attention_probs_function": "entmax", "entmax_alpha": 1}, ("entmax_alpha", "above 1")),
        ({"num_register_token": 4}, ("num_register_token", "num_register_tokens")),
        ({"position_encodings": "rope"}, ("position_encodings", "'position_encoding'")),
        ({"drop_path": 0.1}, ("drop_path",)),
    ],
)
def test_bad_values_are_refused_by_name(changes, words):
    with pytest.raises(Exception) as caught:  # noqa: B017, PT011 - strict has its own error types
        ViTGeoConfig.from_preset("tiny", **changes)
    for word in words:
        assert word in str(caught.value)


def test_near_misses_are_refused_wherever_a_configuration_is_made(tmp_path):
    config = ViTGeoConfig.from_preset("tiny")
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="position_scale"):
        ViTGeoConfig.from_pretrained(tmp_path, position_scal=0.5)
    content = json.loads((tmp_path / "config.json").read_text()) | {"num_register_token": 4}
    with pytest.raises(ValueError, match="num_register_tokens"):
        ViTGeoConfig.from_dict(content)
    with pytest.warns(UserWarning, match="'curator'"):
        assert ViTGeoConfig.from_preset("tiny", curator="me").curator == "me"


def test_numeric_fields_accept_whole_numbers():
    config = ViTGeoConfig(position_scale=1, drop_path_rate=0, hidden_dropout_prob=0, rope_theta=100, cls_init_std=1)
    assert config.position_scale == 1


def test_nothing_is_said_of_what_transformers_passes_through(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = ViTGeoConfig.from_preset("tiny", num_labels=7, attn_implementation="eager", dtype="float32")
        ViTGeoForImageClassification(config).save_pretrained(tmp_path)
        again = ViTGeoConfig.from_pretrained(tmp_path)
    assert again.num_labels == 7


@pytest.mark.parametrize(("labels", "parameters"), [(10, 2_400_586), (100, 2_417_956)], ids=["cifar10", "cifar100"])
def test_paper_b_preset_has_its_parameters(labels, parameters):
    model = ViTGeoForImageClassification(ViTGeoConfig.from_preset("vit_compact_paper_b", num_labels=labels))
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.config.grid_size == (8, 8)


def test_paper_a_preset_is_the_papers_model():
    config = ViTGeoConfig.from_preset("vit_s16_paper_a", num_labels=100)
    model = ViTGeoForImageClassification(config)
    assert sum(p.numel() for p in model.parameters()) == 21_703_396
    assert config.hidden_size // config.num_attention_heads == 48
    assert [drop_path_rate(config, i) for i in (0, 6, 11)] == pytest.approx([0, 0.1, 0.2 * 11 / 12])
    closed = ViTGeoConfig.from_preset("vit_s16_dino")
    assert [drop_path_rate(closed, i) for i in (0, 11)] == pytest.approx([0, 0.1])
    table = model.vitgeo.embeddings.position_embeddings
    assert table.shape == (1, 197, 384) and abs(float(table.detach().std()) - 1) < 0.02
    assert not any(name.startswith("vitgeo.layernorm") for name, _ in model.named_parameters())


def test_registers_and_specialization_add_the_published_parameters():
    def count(**changes):
        model = ViTGeoModel(ViTGeoConfig.from_preset("vit_s16_dino", **changes))
        return sum(p.numel() for p in model.parameters())

    plain = count()
    assert count(num_register_tokens=4) - plain == 1_536
    norms = 25 * 2 * 384
    assert count(token_specialization="norm") - plain == norms
    assert count(token_specialization="norm_qkv") - plain == norms + 4 * (3 * 384**2 + 3 * 384)


def test_presets_are_the_choices_of_the_command_line():
    from typing import get_args, get_type_hints

    from hf_vitgeo.training.arguments import SupervisedArguments

    choices, nothing = get_args(get_type_hints(SupervisedArguments)["preset"])
    assert set(get_args(choices)) == set(PRESETS) and nothing is type(None)
    with pytest.raises(ValueError, match="vit_s16_dino"):
        ViTGeoConfig.from_preset("vit_s16")
