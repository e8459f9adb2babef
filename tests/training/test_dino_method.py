"""The parts of DINO against naive loops, closed forms and the numbers that people were bitten by."""

import math

import numpy as np
import pytest
import torch

from hf_vitgeo.models import ViTGeoConfig, ViTGeoModel
from hf_vitgeo.training.dino_method import (
    DINOHead,
    DINOLoss,
    DINONetwork,
    cancel_last_layer_gradients,
    clip_each_gradient,
    collapse,
    make_teacher,
    teacher_statistics,
    teacher_temperatures,
    update_teacher,
)
from hf_vitgeo.training.schedules import cosine


def naive_loss(student, teacher, center, teacher_temperature, student_temperature=0.1):
    """Every pair of different views, one picture and one output at a time."""
    terms = []
    for t in range(len(teacher)):
        for s in range(len(student)):
            if s == t:
                continue
            for i in range(student.shape[1]):
                target = np.exp((teacher[t, i] - center) / teacher_temperature)
                said = np.exp(student[s, i] / student_temperature)
                terms.append(-np.sum(target / target.sum() * np.log(said / said.sum())))
    return np.mean(terms)


@pytest.mark.parametrize(("views", "globals_"), [(4, 2), (10, 2), (2, 2), (3, 1), (5, 3)])
def test_the_loss_is_the_naive_double_loop(views, globals_):
    rng = np.random.default_rng(views)
    student, teacher, center = rng.normal(size=(views, 3, 7)), rng.normal(size=(globals_, 3, 7)), rng.normal(size=7)
    loss = DINOLoss(7).double()
    loss.center.copy_(torch.tensor(center)[None])
    found = loss(torch.tensor(student), torch.tensor(teacher), 0.07).item()
    assert found == pytest.approx(naive_loss(student, teacher, center, 0.07), abs=1e-12)


def test_which_pairs_of_views_make_the_loss():
    """Case C30: 6 terms for two global and two local views, the mean of them."""
    student = [[[math.sin(1 + 2 * v + 3 * i + k) for k in range(3)] for i in range(2)] for v in range(4)]
    teacher = [[[math.cos(2 + 3 * v + i + 2 * k) for k in range(3)] for i in range(2)] for v in range(2)]
    loss = DINOLoss(out_dim=3, student_temperature=0.1).double()
    loss.center.copy_(torch.tensor([[0.1, -0.2, 0.05]]))
    student, teacher = (torch.tensor(each, dtype=torch.float64) for each in (student, teacher))
    assert loss(student, teacher, teacher_temperature=0.04).item() == pytest.approx(4.01456118774045, abs=1e-9)


@pytest.mark.parametrize("outputs", [256, 4096, 65536])
def test_a_loss_that_stands_still_at_ln_k(outputs):
    """Case C28."""
    flat = torch.zeros(2, 8, outputs)
    loss = DINOLoss(outputs)(flat, flat, teacher_temperature=0.04).item()
    assert loss == pytest.approx(math.log(outputs), abs=1e-4)
    uniform = teacher_statistics(torch.full((8, outputs), 1 / outputs))
    assert uniform["entropy"] == pytest.approx(math.log(outputs), abs=1e-4)
    assert "ln K" in collapse(uniform["entropy"], loss - uniform["entropy"], outputs)


def test_one_output_for_everything_is_told_from_a_run_in_order():
    peaked = teacher_statistics(torch.nn.functional.one_hot(torch.arange(8), 4096).float())
    assert abs(peaked["entropy"]) < 1e-6 and peaked["entropy_of_mean"] == pytest.approx(math.log(8), abs=1e-5)
    assert "entropy is 0" in collapse(peaked["entropy"], 3.0, 4096)
    logits = torch.tensor([[2.0, 1, 0, 0, 0, 0, 0, -1]]) / 0.5
    healthy = teacher_statistics(logits.softmax(-1))["entropy"]
    assert healthy == pytest.approx(0.7367460332514771, abs=1e-6) and collapse(healthy, 0.5, 8) is None
    assert "already" in collapse(healthy, 0.0, 8)


@pytest.mark.parametrize(
    ("student", "teacher", "said"),
    [((1, 2, 4), (1, 2, 4), "second view"), ((2, 2, 4), (3, 2, 4), "do not fit"), ((2, 2, 4), (2, 3, 4), "do not")],
)
def test_views_that_make_no_pair_are_refused(student, teacher, said):
    with pytest.raises(ValueError, match=said):
        DINOLoss(4)(torch.zeros(student), torch.zeros(teacher), 0.04)


def test_the_gradient_reaches_the_student_alone():
    student = torch.randn(3, 2, 5, requires_grad=True)
    teacher = torch.randn(2, 2, 5, requires_grad=True)
    DINOLoss(5)(student, teacher, 0.04).backward()
    assert student.grad.abs().sum() > 0 and teacher.grad is None


def test_the_center_moves_a_tenth_of_the_way():
    loss = DINOLoss(3)
    for _ in range(2):
        loss.update_center(torch.tensor([1.0, 2.0, -1.0]))
    torch.testing.assert_close(loss.center, torch.tensor([[0.19, 0.38, -0.19]]))


def test_schedules_of_case_c26():
    momentum, decay = cosine(0.996, 1.0, 1000), cosine(0.04, 0.4, 1000)
    np.testing.assert_allclose(momentum[[0, 250, 500]], [0.996, 0.9965857864376269, 0.998], rtol=1e-12)
    np.testing.assert_allclose(decay[[0, 250, 500]], [0.04, 0.09272077938642143, 0.22], rtol=1e-12)
    found = teacher_temperatures(0.04, 0.07, 30, 100)
    np.testing.assert_allclose(found[[0, 10, 29, 30, 99]], [0.04, 0.0503448275862069, 0.07, 0.07, 0.07], rtol=1e-12)
    assert len(teacher_temperatures(0.04, 0.07, 30, 3)) == 3 and (teacher_temperatures(0.04, 0.06, 0, 4) == 0.06).all()


def test_the_head_has_a_last_layer_of_unit_rows():
    torch.manual_seed(0)
    head = DINOHead(8, 16, 12, 6)
    features = torch.randn(5, 8)
    hidden = torch.nn.functional.normalize(head.mlp(features), dim=-1)
    rows = head.last_layer.parametrizations.weight.original1
    torch.testing.assert_close(head(features), hidden @ torch.nn.functional.normalize(rows, dim=-1).T)
    learned = [name for name, each in head.last_layer.named_parameters() if each.requires_grad]
    assert learned == ["parametrizations.weight.original1"]
    free = DINOHead(8, 16, 12, 6, norm_last_layer=False)
    assert all(each.requires_grad for each in free.parameters())


def test_dinos_head_has_its_published_size():
    """384 to 2048 to 2048 to 256 with biases, then 65,536 rows of 256 and a norm each."""
    count = sum(each.numel() for each in DINOHead(384, out_dim=65536).parameters())
    assert count == (384 + 1) * 2048 + (2048 + 1) * 2048 + (2048 + 1) * 256 + 65536 * 257


@pytest.fixture
def network():
    def make(**config):
        torch.manual_seed(0)
        backbone = ViTGeoModel(ViTGeoConfig.from_preset("tiny", **config))
        return DINONetwork(backbone, DINOHead(32, 16, 24, 8))

    return make


@pytest.mark.parametrize("encoding", ["none", "learned", "sinusoidal", "rope"])
def test_views_come_out_in_their_order(network, encoding):
    model = network(position_encoding=encoding).eval()
    crops = [torch.randn(2, 3, 3, 32, 32), torch.randn(4, 3, 3, 16, 16)]
    with torch.no_grad():
        found = model(crops)
        each = [model.backbone(view, interpolate_pos_encoding=True).pooler_output for views in crops for view in views]
        torch.testing.assert_close(found, model.head(torch.stack(each)))
    assert found.shape == (6, 3, 16)


def test_the_teacher_starts_as_the_student_without_its_drop_path(network):
    student = network(drop_path_rate=0.5, position_dropout_prob=0.3, permute_tokens_in_training=True)
    teacher = make_teacher(student, drop_path_rate=0.0)
    crops = [torch.randn(2, 3, 3, 32, 32)]
    with torch.no_grad():
        torch.testing.assert_close(teacher(crops), student.eval()(crops))
    assert not teacher.training and not any(each.requires_grad for each in teacher.parameters())
    assert student.backbone.config.drop_path_rate == 0.5


def test_the_teacher_follows_by_its_momentum(network):
    student = network()
    teacher = make_teacher(student)
    before = [each.clone() for each in teacher.parameters()]
    with torch.no_grad():
        for each in student.parameters():
            each.add_(1)
    update_teacher(teacher, student, 0.9)
    for old, new in zip(before, teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.1)


def test_each_gradient_is_clipped_by_its_own_norm():
    small, large, none = (torch.nn.Parameter(torch.zeros(4)) for _ in range(3))
    small.grad, large.grad = torch.full((4,), 0.1), torch.full((4,), 50.0)
    norm = clip_each_gradient([small, large, none], 3.0)
    torch.testing.assert_close(small.grad, torch.full((4,), 0.1))
    assert large.grad.norm().item() == pytest.approx(3.0, abs=1e-5)
    assert norm.item() == pytest.approx(math.hypot(0.2, 100.0), rel=1e-6)


def test_the_last_layer_rests_in_the_first_epoch(network):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    rows = model.head.last_layer.parametrizations.weight.original1
    before = rows.clone()
    for epoch, moves in ((0, False), (1, True)):
        model([torch.randn(2, 3, 3, 32, 32)]).square().sum().backward()
        cancel_last_layer_gradients(epoch, model.head, 1)
        optimizer.step()
        optimizer.zero_grad()
        assert torch.equal(before, rows) != moves
