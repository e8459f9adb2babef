import copy
import warnings

import entmax as package
import numpy as np
import pytest
import torch

from hf_vitgeo.models import entmax as module
from hf_vitgeo.models.entmax import entmax15, newton_iterations

ROWS = {
    "random": lambda n: torch.randn(6, n) * 3,
    "uniform": lambda n: torch.zeros(1, n),
    "one far ahead": lambda n: torch.cat((torch.full((1, 1), 10.0), torch.zeros(1, n - 1)), dim=1),
    "two clusters": lambda n: torch.cat((torch.zeros(1, n // 2), torch.full((1, n - n // 2), 1.5)), dim=1),
    "large": lambda n: torch.randn(4, n) * 1e4,
    "close": lambda n: torch.randn(4, n) * 1e-3,
}


def exact(scores):
    """The package's sorting solution in float64."""
    return package.entmax15(scores.double(), dim=-1)


@pytest.mark.parametrize("n", [1, 2, 3, 65, 197, 1025, 4096])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("way", ["_in_blocks", "_in_fixed_steps"])
def test_equals_the_package_in_float64(way, rows, n):
    scores = ROWS[rows](n)
    expected = exact(scores)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-6)):
        found = getattr(module, way)(scores.to(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(found.double(), expected, atol=tolerance, rtol=0)
        np.testing.assert_allclose(found.double().sum(-1), 1, atol=1e-5)
    assert not found[expected == 0].gt(2e-6).any()


@pytest.mark.parametrize("n", [3, 197])
def test_blocks_and_fixed_steps_agree(n, monkeypatch):
    """A CPU works in blocks of rows; compiled code and accelerators take a fixed number of steps."""
    scores = torch.cat([rows(n) for rows in ROWS.values()]).requires_grad_()
    fixed = module._in_fixed_steps(scores)
    weights = torch.randn_like(fixed)
    slow = module._gradient(fixed.detach(), weights)
    for block in (1, 2 * n + 1, 2**18):
        monkeypatch.setattr(module, "_BLOCK", block)
        scores.grad = None
        found = entmax15(scores)
        found.backward(weights)
        torch.testing.assert_close(found, fixed, atol=2e-6, rtol=0)
        torch.testing.assert_close(scores.grad, slow, atol=1e-4, rtol=1e-3)
    assert entmax15(scores[:0]).shape == (0, n)


def test_golden_values():
    expected = torch.tensor([0.830719, 0.169281, 0.0])
    torch.testing.assert_close(entmax15(torch.tensor([1.0, 0, -1])), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(entmax15(torch.tensor([2.0, 1, 0])), expected, atol=1e-6, rtol=0)
    expected = torch.tensor([0.586572, 0.266132, 0.133868, 0.013428])
    torch.testing.assert_close(entmax15(torch.tensor([1.0, 0.5, 0.2, -0.3])), expected, atol=1e-6, rtol=0)
    assert entmax15(torch.tensor([2.0, 0.0])).tolist() == [1, 0]
    assert entmax15(torch.tensor([3.0, 0, 0])).tolist() == [1, 0, 0]


def test_any_dimension_and_masks():
    scores = torch.randn(3, 7, 5)
    for dim in (0, 1, 2, -2):
        np.testing.assert_allclose(entmax15(scores, dim), package.entmax15(scores.double(), dim=dim), atol=2e-6)
    masked = scores.clone()
    masked[..., 2:4] = -torch.inf
    found = entmax15(masked)
    assert not found[..., 2:4].any()
    torch.testing.assert_close(found[..., [0, 1, 4]], entmax15(scores[..., [0, 1, 4]]))


def test_rows_without_an_answer_are_nan_as_for_softmax():
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor([[0.0, nan, 1], [-inf, -inf, -inf], [0, inf, 0], [0, 1, 2]])
    found = entmax15(scores)
    assert torch.equal(found.isnan().all(-1), scores.softmax(-1).isnan().all(-1))
    assert torch.equal(found[3], entmax15(scores[3]))
    with pytest.raises(TypeError, match="int64"):
        entmax15(torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(dtype):
    scores = (torch.randn(4, 197) * 3).to(dtype)
    found = entmax15(scores)
    assert found.dtype == dtype
    torch.testing.assert_close(found, entmax15(scores.float()).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(entmax15(scores.float()), entmax15(scores.float()))
        assert entmax15(scores.float()).dtype == torch.float32


def test_gradient():
    scores = (torch.randn(3, 9, dtype=torch.float64) * 2).requires_grad_()
    assert torch.autograd.gradcheck(entmax15, (scores,))
    assert torch.autograd.gradcheck(lambda z: entmax15(z, 0), (scores,))
    weights = torch.randn(3, 9, dtype=torch.float64)
    (ours,) = torch.autograd.grad((entmax15(scores) * weights).sum(), scores)
    (theirs,) = torch.autograd.grad((package.entmax15(scores, dim=-1) * weights).sum(), scores)
    torch.testing.assert_close(ours, theirs)


def test_the_second_derivative_is_right():
    """The backward pass is made of differentiable parts of the saved output, so it can be derived again."""
    scores = torch.tensor([[1.0, 0.4, 0.1, -0.3]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(entmax15, (scores,))
    sparse = torch.tensor([[1.0, 0.4, -0.2, -4.0]], dtype=torch.float64, requires_grad=True)
    assert entmax15(sparse)[0, 3] == 0
    assert torch.autograd.gradgradcheck(entmax15, (sparse,))


def test_functional_transforms():
    scores = torch.randn(4, 3, 9, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(entmax15)(scores), entmax15(scores))
    weights = torch.randn(9, dtype=torch.float64)
    by_hand = torch.stack([torch.func.grad(lambda z: (entmax15(z) * weights).sum())(row) for row in scores[0]])
    together = torch.func.vmap(torch.func.grad(lambda z: (entmax15(z) * weights).sum()))(scores[0])
    torch.testing.assert_close(together, by_hand)


def test_compile_and_export():
    scores = torch.randn(2, 65, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(entmax15, fullgraph=True, backend="aot_eager")
    found = compiled(scores)
    found.square().sum().backward()
    torch.testing.assert_close(found, entmax15(scores))
    again = copy.deepcopy(scores.detach()).requires_grad_()
    entmax15(again).square().sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)

    class Module(torch.nn.Module):
        def forward(self, z):
            return entmax15(z)

    exported = torch.export.export(Module(), (torch.randn(2, 65),))
    fixed = torch.randn(2, 65)
    torch.testing.assert_close(exported.module()(fixed), entmax15(fixed))


def test_the_fixed_number_of_steps():
    assert [newton_iterations(n) for n in (1, 65, 197, 1025, 4096)] == [4, 7, 7, 8, 8]


def test_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")

    class Module(torch.nn.Module):
        def forward(self, z):
            return entmax15(z)

    scores = torch.randn(2, 65)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its own changes
        torch.onnx.export(Module().eval(), (scores,), dynamo=True, verbose=False).save(str(tmp_path / "entmax.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "entmax.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: scores.numpy()})
    np.testing.assert_allclose(found, entmax15(scores), atol=2e-6)
