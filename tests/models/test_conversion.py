import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTForMaskedImageModeling, ViTModel

from hf_vitgeo.models import ViTGeoModel
from hf_vitgeo.models.conversion import from_vit

SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def source():
    def make(cls=ViTModel, **changes):
        return cls(
            ViTConfig(**{**SIZES, "image_size": 32, "patch_size": 8, "initializer_range": 0.2, **changes})
        ).eval()

    return make


@torch.no_grad()
def tokens(model, *args, **kwargs):
    return model(*args, **kwargs).last_hidden_state


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_equals_transformers_on_its_own_weights(source, kernel):
    theirs = source(layer_norm_eps=1e-12)
    ours = from_vit(theirs)
    for model in (theirs, ours):
        model.set_attn_implementation(kernel)
    pictures = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(tokens(ours, pictures), tokens(theirs, pictures), atol=1e-5, rtol=0)
    with torch.no_grad():
        a = ours(pictures, output_hidden_states=True).hidden_states
        b = theirs(pictures, output_hidden_states=True).hidden_states
    assert len(a) == len(b)
    for ours_layer, theirs_layer in zip(a, b, strict=True):
        torch.testing.assert_close(ours_layer, theirs_layer, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(48, 48), (24, 40), (40, 24), (16, 64)])
def test_equals_transformers_at_other_sizes(source, size):
    """16x64 has as many patches as 32x32 and another grid: the table must be interpolated all the same."""
    theirs = source()
    ours = from_vit(theirs)
    pictures = torch.randn(2, 3, *size)
    expected = tokens(theirs, pictures, interpolate_pos_encoding=True)
    found = tokens(ours, pictures, interpolate_pos_encoding=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match=f"{size[0]}x{size[1]}"):
        ours(pictures)


@pytest.mark.parametrize("cls", [ViTForImageClassification, ViTForMaskedImageModeling])
def test_heads_are_left_out(source, cls):
    theirs = source(cls, **({"num_labels": 3} if cls is ViTForImageClassification else {}))
    pictures = torch.randn(2, 3, 32, 32)
    expected = tokens(theirs.vit, pictures)
    torch.testing.assert_close(tokens(from_vit(theirs), pictures), expected, atol=1e-5, rtol=0)


def test_paths_overrides_and_alpha(source, tmp_path):
    theirs = source()
    theirs.save_pretrained(tmp_path / "vit")
    pictures = torch.randn(2, 3, 32, 32)
    ours = from_vit(tmp_path / "vit", position_scale=0.4).eval()
    with torch.no_grad():
        theirs.embeddings.position_embeddings.mul_(0.4)
    expected = tokens(theirs, pictures)
    torch.testing.assert_close(tokens(ours, pictures), expected, atol=1e-5, rtol=0)
    ours.save_pretrained(tmp_path / "ours")
    again = ViTGeoModel.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(tokens(again, pictures), expected, atol=1e-5, rtol=0)
    assert from_vit(source(), attention_probs_function="entmax15").config.attention_probs_function == "entmax15"
    assert from_vit(source().to(torch.bfloat16)).dtype == torch.bfloat16


def test_what_does_not_fit_is_named(source):
    with pytest.raises(ValueError, match="register_tokens"):
        from_vit(source(), num_register_tokens=4)
    with pytest.raises(ValueError, match="without a place.*position_embeddings"):
        from_vit(source(), position_encoding="rope")
    with pytest.raises(ValueError, match=r"position_embeddings \(1, 17, 32\) for \(1, 65, 32\)"):
        from_vit(source(), image_size=64)
    with pytest.raises(ValueError, match="Linear"):
        from_vit(torch.nn.Linear(2, 2))
    from transformers import Dinov2Config, Dinov2Model

    with pytest.raises(ValueError, match="dinov2"):
        from_vit(Dinov2Model(Dinov2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=4)))


def test_a_missing_weight_is_an_error(source):
    theirs = source()
    theirs.layers[1].attention.q_proj = torch.nn.Identity()
    with pytest.raises(ValueError, match=r"missing \['layers.1.attention.q_proj.bias', 'layers.1.*q_proj.weight'\]"):
        from_vit(theirs)


def test_training_mode_is_kept(source):
    assert from_vit(source().train()).training and not from_vit(source()).training
    assert np.isfinite(tokens(from_vit(source()), torch.zeros(1, 3, 32, 32)).numpy()).all()
