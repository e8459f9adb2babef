import copy

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification, ViTGeoModel
from tests.conftest import ENCODINGS, FUNCTIONS

everything = pytest.mark.parametrize("encoding", ENCODINGS)
functions = pytest.mark.parametrize("function", FUNCTIONS)


@torch.no_grad()
def outputs(model, *args, **kwargs):
    return model(*args, **kwargs)


def test_auto_classes_know_the_family(tiny_config):
    assert isinstance(AutoConfig.for_model("vitgeo"), ViTGeoConfig)
    assert isinstance(AutoModel.from_config(tiny_config()), ViTGeoModel)
    assert isinstance(AutoModelForImageClassification.from_config(tiny_config()), ViTGeoForImageClassification)


@everything
@functions
def test_shapes_and_recorded_outputs(tiny_classifier, pictures, encoding, function):
    model = tiny_classifier(position_encoding=encoding, attention_probs_function=function, num_register_tokens=2)
    model.set_attn_implementation("eager")
    found = outputs(model, pictures, output_attentions=True, output_hidden_states=True)
    assert found.logits.shape == (3, 5)
    assert [tuple(a.shape) for a in found.attentions] == [(3, 4, 67, 67)] * 2
    assert [tuple(h.shape) for h in found.hidden_states] == [(3, 67, 32)] * 3
    for weights in found.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 67))


@everything
def test_sdpa_equals_eager(tiny_model, pictures, encoding):
    model = tiny_model(position_encoding=encoding)
    assert model.config._attn_implementation == "sdpa"
    fast = outputs(model, pictures).last_hidden_state
    model.set_attn_implementation("eager")
    torch.testing.assert_close(outputs(model, pictures).last_hidden_state, fast, atol=1e-5, rtol=0)


@everything
@functions
def test_only_a_model_without_encoding_is_permutation_equivariant(tiny_model, pictures, encoding, function):
    model = tiny_model(position_encoding=encoding, attention_probs_function=function, num_register_tokens=1)
    order = torch.randperm(64)
    plain = outputs(model, pictures).last_hidden_state
    moved = outputs(model, pictures, token_permutation=order).last_hidden_state
    expected = torch.cat((plain[:, :2], plain[:, 2:][:, order]), dim=1)
    difference = float((moved - expected).abs().max())
    assert difference < 1e-5 if encoding == "none" else difference > 1e-2


@everything
def test_the_identity_permutation_changes_no_bit(tiny_model, pictures, encoding):
    model = tiny_model(position_encoding=encoding)
    plain = outputs(model, pictures).last_hidden_state
    for identity in (torch.arange(64), torch.arange(64).expand(3, 64)):
        assert torch.equal(outputs(model, pictures, token_permutation=identity).last_hidden_state, plain)


def test_rpi_moves_content_and_leaves_positions(tiny_model, pictures):
    model = tiny_model(position_encoding="learned")
    order = torch.randperm(64)
    content = model.embeddings.patch_embeddings(pictures)
    position = model.embeddings.position_embeddings
    found = outputs(model.embeddings, pictures, (8, 8), token_permutation=order)
    torch.testing.assert_close(found[:, 1:], content[:, order] + position[:, 1:])
    torch.testing.assert_close(found[:, 0], (model.embeddings.cls_token + position[:, :1])[:, 0].expand(3, -1))


def test_a_permutation_for_each_picture(tiny_model, pictures):
    model = tiny_model(position_encoding="rope")
    orders = torch.stack([torch.randperm(64) for _ in range(3)])
    together = outputs(model, pictures, token_permutation=orders).last_hidden_state
    for i in range(3):
        alone = outputs(model, pictures[i : i + 1], token_permutation=orders[i]).last_hidden_state
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("permutation", "words"),
    [
        (torch.arange(63), "(63,)"),
        (torch.arange(64).expand(2, 64), "(2, 64)"),
        (torch.arange(64).float(), "float32"),
        (torch.zeros(64, dtype=torch.long), "no permutation"),
    ],
)
def test_wrong_permutations_are_refused(tiny_model, pictures, permutation, words):
    with pytest.raises(ValueError, match="token_permutation") as caught:
        tiny_model()(pictures, token_permutation=permutation)
    assert words in str(caught.value)


def test_rpt_shuffles_in_training_only(tiny_model, pictures):
    model = tiny_model(position_encoding="learned", permute_tokens_in_training=True)
    plain = outputs(model, pictures).last_hidden_state
    assert torch.equal(outputs(model, pictures).last_hidden_state, plain)
    model.train()
    torch.manual_seed(5)
    trained = outputs(model, pictures).last_hidden_state
    torch.manual_seed(5)
    order = torch.randperm(64)
    assert torch.equal(outputs(model.eval(), pictures, token_permutation=order).last_hidden_state, trained)


def test_alpha_scales_the_whole_table_once(tiny_model, pictures, tmp_path):
    model = tiny_model(position_encoding="learned")
    by_call = outputs(model, pictures, position_scale=0.4).last_hidden_state
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        scaled.embeddings.position_embeddings.mul_(0.4)
    torch.testing.assert_close(by_call, outputs(scaled, pictures).last_hidden_state)
    by_field = ViTGeoModel(ViTGeoConfig.from_dict(model.config.to_dict() | {"position_scale": 0.4})).eval()
    by_field.load_state_dict(model.state_dict())
    assert torch.equal(outputs(by_field, pictures).last_hidden_state, by_call)
    by_field.save_pretrained(tmp_path)
    assert torch.equal(outputs(ViTGeoModel.from_pretrained(tmp_path).eval(), pictures).last_hidden_state, by_call)
    back = ViTGeoModel.from_pretrained(tmp_path, position_scale=1).eval()
    assert torch.equal(outputs(back, pictures).last_hidden_state, outputs(model, pictures).last_hidden_state)
    # alpha 0 is a model without a table
    bare = copy.deepcopy(model)
    with torch.no_grad():
        bare.embeddings.position_embeddings.zero_()
    assert torch.equal(
        outputs(model, pictures, position_scale=0).last_hidden_state, outputs(bare, pictures).last_hidden_state
    )


def test_alpha_scales_sinusoids_with_the_cls_slot(tiny_model, pictures):
    model = tiny_model(position_encoding="sinusoidal")
    whole, half = (outputs(model.embeddings, pictures, (8, 8), position_scale=a) for a in (1, 0.5))
    nothing = outputs(model.embeddings, pictures, (8, 8), position_scale=0)
    torch.testing.assert_close(whole - nothing, 2 * (half - nothing), atol=1e-6, rtol=1e-5)
    assert float((whole - nothing)[:, 0].abs().max()) > 0.1


@pytest.mark.parametrize("encoding", ["none", "rope"])
def test_alpha_is_refused_where_nothing_is_added(tiny_model, pictures, tmp_path, encoding):
    model = tiny_model(position_encoding=encoding)
    with pytest.raises(ValueError, match="position_scale is 0.4.*learned"):
        model(pictures, position_scale=0.4)
    model.save_pretrained(tmp_path)
    with pytest.raises(Exception, match="position_scale is 0.4"):
        ViTGeoModel.from_pretrained(tmp_path, position_scale=0.4)


def test_mean_pooling_leaves_prefix_tokens_out(tiny_model, pictures):
    model = tiny_model(num_register_tokens=4, pooling="mean")
    found = outputs(model, pictures)
    assert found.last_hidden_state.shape == (3, 69, 32)
    torch.testing.assert_close(found.pooler_output, found.last_hidden_state[:, 5:].mean(1))
    without = tiny_model(use_cls_token=False, pooling="mean", num_register_tokens=0)
    found = outputs(without, pictures)
    assert found.last_hidden_state.shape == (3, 64, 32)
    torch.testing.assert_close(found.pooler_output, found.last_hidden_state.mean(1))


@everything
def test_other_sizes(tiny_model, encoding):
    model = tiny_model(position_encoding=encoding)
    with pytest.raises(ValueError, match="48x40.*32x32.*interpolate_pos_encoding"):
        model(torch.zeros(1, 3, 48, 40))
    with pytest.raises(ValueError, match="33x32.*divisible"):
        model(torch.zeros(1, 3, 33, 32), interpolate_pos_encoding=True)
    found = outputs(model, torch.randn(2, 3, 48, 40), interpolate_pos_encoding=True)
    assert found.last_hidden_state.shape == (2, 1 + 12 * 10, 32)


@everything
def test_pictures_that_are_not_square(tiny_model, encoding):
    model = tiny_model(position_encoding=encoding, image_size=(16, 48), patch_size=(4, 8))
    assert model.config.grid_size == (4, 6)
    assert outputs(model, torch.randn(2, 3, 16, 48)).last_hidden_state.shape == (2, 25, 32)


def test_wrong_pixel_shapes_are_refused(tiny_model):
    with pytest.raises(ValueError, match=r"\(3, 32, 32\)"):
        tiny_model()(torch.zeros(3, 32, 32))
    with pytest.raises(ValueError, match=r"\(32,\)"):
        tiny_model()(torch.zeros(32))
    with pytest.raises(ValueError, match=r"\(1, 1, 32, 32\).*3"):
        tiny_model()(torch.zeros(1, 1, 32, 32))


def test_loss_of_hard_and_soft_labels(tiny_classifier, pictures):
    model = tiny_classifier()
    hard = torch.tensor([0, 4, 2])
    soft = nn.functional.one_hot(hard, 5).float()
    assert model(pictures, labels=hard).loss.item() == pytest.approx(
        model(pictures, labels=soft).loss.item(), abs=1e-6
    )
    assert model.config.problem_type is None


@everything
@functions
def test_gradient_checkpointing_gives_the_same_gradients(tiny_classifier, pictures, encoding, function):
    model = tiny_classifier(position_encoding=encoding, attention_probs_function=function).train()
    labels = torch.tensor([0, 1, 2])
    model(pictures, labels=labels).loss.backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.gradient_checkpointing_enable()
    model(pictures, labels=labels).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name])


@everything
def test_every_parameter_learns(tiny_classifier, pictures, encoding):
    """From [CLS] or from the patches: what only the other one reads has no gradient in the last block."""
    idle = []
    for pooling in ("cls", "mean"):
        model = tiny_classifier(
            position_encoding=encoding,
            num_register_tokens=2,
            token_specialization="norm_qkv",
            num_hidden_layers=3,
            layerscale_value=0.1,
            pooling=pooling,
        ).train()
        model(pictures, labels=torch.tensor([0, 1, 2])).loss.backward()
        idle.append({name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()})
    assert not idle[0] & idle[1]


@everything
@functions
def test_bfloat16(tiny_classifier, pictures, tmp_path, encoding, function):
    model = tiny_classifier(position_encoding=encoding, attention_probs_function=function)
    model.save_pretrained(tmp_path)
    low = ViTGeoForImageClassification.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    logits = outputs(low, pictures).logits
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), outputs(model, pictures).logits, atol=0.15, rtol=0.1)


def test_a_softmax_kernel_is_refused_for_entmax(tiny_model, pictures, tmp_path):
    model = tiny_model(attention_probs_function="entmax15")
    assert model.config._attn_implementation == "eager"
    model.save_pretrained(tmp_path)
    assert ViTGeoModel.from_pretrained(tmp_path).config.attention_probs_function == "entmax15"
    with pytest.raises(ValueError, match="'sdpa'.*entmax15"):
        ViTGeoModel.from_pretrained(tmp_path, attn_implementation="sdpa")
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="'sdpa'.*entmax15"):
        model(pictures)


def test_entmax_has_exact_zeros_and_softmax_none(tiny_model, pictures):
    for function, zeros in (("entmax15", True), ("softmax", False)):
        model = tiny_model(attention_probs_function=function, initializer_range=0.5)
        model.set_attn_implementation("eager")
        weights = outputs(model, pictures, output_attentions=True).attentions[1]
        assert bool((weights == 0).any()) is zeros


def test_alpha_of_the_entmax_package(tiny_model, pictures):
    ours = tiny_model(attention_probs_function="entmax15")
    package = tiny_model(attention_probs_function="entmax")
    package.load_state_dict(ours.state_dict())
    torch.testing.assert_close(
        outputs(package, pictures).last_hidden_state, outputs(ours, pictures).last_hidden_state, atol=1e-5, rtol=0
    )
    sparsemax = tiny_model(attention_probs_function="entmax", entmax_alpha=2, initializer_range=0.5)
    weights = outputs(sparsemax, pictures, output_attentions=True).attentions[0]
    assert bool((weights == 0).any())


def test_entmax_package_missing_is_said(tiny_model, monkeypatch):
    monkeypatch.setattr("hf_vitgeo.models.attention.entmax_bisect", None)
    with pytest.raises(ImportError, match="pip install entmax"):
        tiny_model(attention_probs_function="entmax")


@everything
@functions
def test_compiles_in_one_graph(tiny_classifier, pictures, encoding, function):
    """Tracing and gradients without a C++ compiler; `test_slow.py` runs inductor."""
    model = tiny_classifier(position_encoding=encoding, attention_probs_function=function)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = compiled(pictures, labels=torch.tensor([0, 1, 2]))
    found.loss.backward()
    torch.testing.assert_close(found.logits, outputs(model, pictures).logits, atol=1e-5, rtol=0)


def test_drop_path_drops_whole_pictures_and_keeps_the_mean(tiny_model):
    from hf_vitgeo.models.layers import ViTGeoDropPath

    drop = ViTGeoDropPath(0.25).train()
    found = drop(torch.ones(4000, 3, 2))
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert bool((found == found[:, :1, :1]).all())
    assert float(found.mean()) == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(torch.ones(2, 3, 2)), torch.ones(2, 3, 2))
