import copy

import numpy as np
import pytest
import torch
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from hf_vitgeo.analysis.adapters import adapter_for
from hf_vitgeo.analysis.recorder import record
from hf_vitgeo.analysis.spatial_structure import permutations
from hf_vitgeo.metrics.mad.pure import attention_entropy, mean_attention_distance
from hf_vitgeo.metrics.ssdt.pure import ssdt
from hf_vitgeo.models import ViTGeoModel
from hf_vitgeo.models.conversion import from_vit

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
MLP = {"intermediate_size": 64}


def foreign(kind):
    torch.manual_seed(1)
    wide = {**SIZES, "initializer_range": 0.2}
    if kind == "vit":
        return ViTModel(ViTConfig(**wide, **MLP), add_pooling_layer=False).eval()
    if kind == "dinov2":
        return Dinov2Model(Dinov2Config(**wide, mlp_ratio=2)).eval()
    return Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**wide, mlp_ratio=2, num_register_tokens=4)).eval()


def naive(model, pictures, prefix):
    """SSDT of every layer from all tokens at once, MAD of every head from all maps at once."""
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    inputs = []
    adapter = adapter_for(model)
    handles = [
        attention.register_forward_pre_hook(
            lambda m, a, k: inputs.append((a or (k["hidden_states"],))[0]), with_kwargs=True
        )
        for attention in adapter.attentions
    ]
    with torch.no_grad():
        found = model(pictures, output_attentions=True, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    layers = [*inputs, found.hidden_states[-1]]
    values, each = [], []
    for tokens in layers:
        patches = torch.nn.functional.normalize(tokens[:, prefix:].double(), dim=-1)
        similarity = (patches @ patches.transpose(1, 2)).numpy()
        values.append(float(ssdt(similarity.mean(0), (4, 4))))
        each.append([float(ssdt(s, (4, 4))) for s in similarity])
    heads = [mean_attention_distance(a.double(), (4, 4), prefix).mean(0).numpy() for a in found.attentions]
    entropy = [attention_entropy(a.double(), prefix).mean(0).numpy() for a in found.attentions]
    return np.array(values), np.array(each).T, np.stack(heads), np.stack(entropy)


@pytest.mark.parametrize(("kind", "prefix"), [("vit", 1), ("dinov2", 1), ("registers", 5)])
def test_every_family_against_all_tokens_at_once(kind, prefix):
    model, pictures = foreign(kind), torch.randn(6, 3, 32, 32)
    values, each, heads, entropy = naive(model, pictures, prefix)
    found = record(model, [pictures[:4], pictures[4:]])
    np.testing.assert_allclose(found["ssdt"], values, atol=1e-4)
    np.testing.assert_allclose(found["ssdt_per_image"], each, atol=2e-3)
    np.testing.assert_allclose(found["mean_attention_distance"], heads, atol=1e-5)
    np.testing.assert_allclose(found["attention_entropy"], entropy, atol=1e-5)
    assert found["grid_size"] == (4, 4) and found["n_images"] == 6
    assert not found["dropped_row_share"].any()


@pytest.mark.parametrize("function", ["softmax", "entmax15"])
def test_the_batch_size_does_not_matter(tiny_model, function):
    model = tiny_model(attention_probs_function=function, num_register_tokens=2, initializer_range=0.3)
    pictures = torch.randn(12, 3, 32, 32)
    order = permutations(64, 1, 0)[0]
    results = [record(model, pictures.split(n), token_permutation=order) for n in (1, 5, 12)]
    for other in results[1:]:
        for name, value in results[0].items():
            np.testing.assert_allclose(
                np.asarray(other[name]), np.asarray(value), atol=2e-4 if "ssdt" in name else 1e-5
            )


def test_rpi_is_the_forward_argument_and_the_hook_is_the_same(tiny_model):
    source = foreign("vit")
    ours = from_vit(source)
    pictures, order = torch.randn(5, 3, 32, 32), torch.randperm(16)
    a = record(ours, [pictures], token_permutation=order)
    b = record(source, [pictures], token_permutation=order)
    np.testing.assert_allclose(a["similarity"], b["similarity"], atol=1e-5)
    assert np.abs(a["similarity"] - record(ours, [pictures])["similarity"]).max() > 1e-2


def test_only_the_first_layers(tiny_model):
    model = tiny_model(num_hidden_layers=3)
    pictures = torch.randn(4, 3, 32, 32)
    whole = record(model, [pictures])
    part = record(model, [pictures], num_layers=1, attentions=False, per_image=False)
    np.testing.assert_allclose(part["similarity"], whole["similarity"][:2], atol=1e-6)
    with pytest.raises(ValueError, match="num_layers is 4; the model has 3"):
        record(model, [pictures], num_layers=4)


def test_alpha_for_one_pass_leaves_the_model(tiny_model):
    model = tiny_model()
    pictures = torch.randn(4, 3, 32, 32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain, scaled = record(model, [pictures]), record(model, [pictures], position_scale=0.3)
    assert np.abs(plain["similarity"] - scaled["similarity"]).max() > 0.01
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="position_scale is 0.3.*ViTGeo"):
        record(foreign("vit"), [torch.randn(1, 3, 32, 32)], position_scale=0.3)


@pytest.mark.parametrize("make", [lambda: foreign("vit"), lambda: from_vit(foreign("vit"))])
def test_nothing_is_left_behind_by_an_exception(make):
    model = make().train()
    model.base_model.layernorm.eval()
    calls = []
    mine = model.base_model.layernorm.register_forward_hook(lambda *a: calls.append(1))

    def hooks():
        found = (h for m in model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values()))
        return sum("output_capturing" not in h.__module__ for h in found)

    kernel, count = model.config._attn_implementation, hooks()
    flags = [m.training for m in model.modules()]
    fresh = record(copy.deepcopy(model), [torch.ones(2, 3, 32, 32)])

    def interrupted(kind):
        yield torch.zeros(2, 3, 32, 32)
        raise kind("stop")

    for kind in (ValueError, KeyboardInterrupt):
        with pytest.raises(kind):
            record(model, interrupted(kind))
    with pytest.raises(ValueError):
        record(model, [torch.zeros(2, 3, 33, 32)])
    assert hooks() == count == 1 and calls
    assert model.config._attn_implementation == kernel and [m.training for m in model.modules()] == flags
    again = record(model, [torch.ones(2, 3, 32, 32)])
    np.testing.assert_array_equal(again["similarity"], fresh["similarity"])
    mine.remove()


@pytest.mark.filterwarnings("ignore:SSDT is nan:UserWarning", "ignore:.*mass:UserWarning")
def test_a_head_without_patch_mass_is_counted(tiny_model):
    """entmax can leave a query no patch at all; such rows leave MAD and entropy and are reported."""
    model = tiny_model(attention_probs_function="entmax15", num_hidden_layers=1)
    attention = model.layers[0].attention
    with torch.no_grad():
        for linear in (attention.q_proj, attention.k_proj):
            linear.weight.zero_()
            linear.bias.zero_()
        # Head 0: every query is all on [CLS], which alone has a key along the query.
        attention.q_proj.bias[:8] = 10.0
        attention.k_proj.weight[:8] = 0.0
        model.embeddings.cls_token.zero_()
        model.embeddings.position_embeddings[:, 1:] = 0.0
        model.embeddings.position_embeddings[:, 0] = torch.linspace(-3, 3, 32)
        attention.k_proj.weight[:8] = torch.linspace(-1, 1, 32)
        model.embeddings.patch_embeddings.projection.weight.zero_()
        model.embeddings.patch_embeddings.projection.bias.zero_()
    found = record(model, [torch.randn(2, 3, 32, 32)])
    assert found["dropped_row_share"][0].tolist() == [1, 0, 0, 0]
    assert np.isnan(found["mean_attention_distance"][0, 0]) and found["patch_mass"][0, 0] == 0
    np.testing.assert_allclose(found["mean_attention_distance"][0, 1:], 0.41784785364223714, atol=1e-6)
    np.testing.assert_allclose(found["attention_entropy"][0, 1:], 1, atol=1e-6)


def test_bad_input_is_named(tiny_model):
    model = tiny_model()
    with pytest.raises(ValueError, match="no pictures"):
        record(model, [])
    with pytest.raises(ValueError, match="'resnet'|no adapter"):
        record(torch.nn.Linear(2, 2), [torch.zeros(1, 3, 32, 32)])
    with pytest.raises(ValueError, match="token_permutation"):
        record(model, [torch.zeros(1, 3, 32, 32)], token_permutation=torch.arange(10))


def test_classifiers_are_recorded_through_their_backbone(tiny_classifier):
    torch.manual_seed(2)
    model = ViTForImageClassification(ViTConfig(**SIZES, **MLP, num_labels=3)).eval()
    assert record(model, [torch.randn(2, 3, 32, 32)])["ssdt"].shape == (4,)
    assert record(tiny_classifier(), [torch.randn(2, 3, 32, 32)])["ssdt"].shape == (3,)


def test_the_similarity_of_a_model_without_encoding_is_permuted_with_its_tokens(tiny_model):
    model = tiny_model(position_encoding="none")
    pictures, order = torch.randn(3, 3, 32, 32), torch.randperm(64)
    plain = record(model, [pictures])["similarity"]
    moved = record(model, [pictures], token_permutation=order)["similarity"]
    np.testing.assert_allclose(moved, plain[:, order][:, :, order], atol=1e-5)
    assert isinstance(model, ViTGeoModel)
