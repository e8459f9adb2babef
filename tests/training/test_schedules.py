import numpy as np
import pytest

from hf_vitgeo.training.schedules import cosine, parameter_groups, warmup_cosine


def test_warmup_and_cosine_by_optimiser_step():
    rates = warmup_cosine(base=1e-3, final=0.0, total_steps=100, warmup_steps=10)
    assert len(rates) == 100
    expected = [0, 1e-4, 5e-4, 9e-4, 1e-3, 9.996954135095479e-4, 8.596699001693256e-4, 5e-4, 3.0458649045211895e-7]
    np.testing.assert_allclose(rates[[0, 1, 5, 9, 10, 11, 32, 55, 99]], expected, rtol=1e-9, atol=1e-15)


def test_cosine_between_two_values():
    momentum, decay = cosine(0.996, 1.0, 1000), cosine(0.04, 0.4, 1000)
    np.testing.assert_allclose(momentum[[0, 250, 500, 999]], [0.996, 0.9965857864376269, 0.998, 0.9999999901304037])
    np.testing.assert_allclose(decay[[0, 250, 500, 999]], [0.04, 0.09272077938642143, 0.22, 0.3999991117363345])


@pytest.mark.parametrize("warmup", [-1, 10])
def test_a_warmup_outside_the_run_is_refused(warmup):
    with pytest.raises(ValueError, match=f"warmup_steps is {warmup}.*10"):
        warmup_cosine(1e-3, 0, 10, warmup)


def test_only_matrices_decay(tiny_classifier):
    model = tiny_classifier(position_encoding="learned", num_register_tokens=2)
    decayed, spared = (set(map(id, group["params"])) for group in parameter_groups(model, 0.05))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert decayed | spared == set(names) and not decayed & spared
    assert all(names[key].endswith("weight") and "layernorm" not in names[key] for key in decayed)
    assert {"vitgeo.embeddings.position_embeddings", "vitgeo.embeddings.cls_token"} <= {names[key] for key in spared}
