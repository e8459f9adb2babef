import math

import numpy as np
import pytest
import torch

from hf_vitgeo.models import ViTGeoModel
from hf_vitgeo.models.position_encoding import apply_rope, interpolate_table, rope_tables, sinusoidal_table


def test_sinusoids_are_the_formula():
    h, w, dim = 3, 5, 8
    expected = np.zeros((h * w, dim))
    for row in range(h):
        for column in range(w):
            for k in range(dim // 4):
                frequency = 10000 ** (-k / (dim // 4))
                for part, (axis, function) in enumerate(
                    ((column, math.sin), (column, math.cos), (row, math.sin), (row, math.cos))
                ):
                    expected[row * w + column, part * (dim // 4) + k] = function(axis * frequency)
    np.testing.assert_allclose(sinusoidal_table((h, w), dim).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("coordinates", ["index", "normalized"])
def test_rotation_is_the_formula(coordinates):
    h, w, dim, theta = 2, 3, 8, 100.0
    states = torch.randn(1, 1, 2 + h * w, dim)
    found = apply_rope(states, *rope_tables((h, w), dim, theta, coordinates, 2))[0, 0]
    assert torch.equal(found[:2], states[0, 0, :2])
    for row in range(h):
        for column in range(w):
            x, y = float(column), float(row)
            if coordinates == "normalized":
                x, y = (2 * math.pi * (2 * (value + 0.5) / side - 1) for value, side in ((x, w), (y, h)))
            source = states[0, 0, 2 + row * w + column].tolist()
            expected = [0.0] * dim
            for half, position in enumerate((x, y)):
                for k in range(dim // 4):
                    angle = position * theta ** (-k / (dim // 4))
                    i, j = half * dim // 2 + k, half * dim // 2 + dim // 4 + k
                    expected[i] = source[i] * math.cos(angle) - source[j] * math.sin(angle)
                    expected[j] = source[j] * math.cos(angle) + source[i] * math.sin(angle)
            torch.testing.assert_close(found[2 + row * w + column], torch.tensor(expected), atol=1e-5, rtol=0)


def test_rotary_scores_depend_on_offsets_only():
    cos, sin = rope_tables((4, 4), 8, 10000.0)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    turned_q = apply_rope(q.expand(1, 1, 16, 8), cos, sin)[0, 0]
    turned_k = apply_rope(k.expand(1, 1, 16, 8), cos, sin)[0, 0]
    scores = turned_q @ turned_k.T
    torch.testing.assert_close(scores[0, 5], scores[5, 10])
    torch.testing.assert_close(scores[1, 4], scores[6, 9])
    assert abs(float(scores[0, 1] - scores[0, 4])) > 1e-3


def test_registers_and_cls_are_not_rotated(tiny_config):
    """Queries and keys all ones on a 2x3 grid: closed form (case: rotation shifted by prefix tokens)."""
    blocks, state = [], None
    for registers in (0, 4):
        config = tiny_config(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=(16, 24),
            patch_size=8,
            position_encoding="rope",
            num_register_tokens=registers,
        )
        model = ViTGeoModel(config).eval()
        model.set_attn_implementation("eager")
        if state is not None:
            model.load_state_dict(state, strict=False)
        state = model.state_dict()
        with torch.no_grad():
            layer = model.layers[0].attention
            for linear in (layer.q_proj, layer.k_proj):
                linear.weight.zero_()
                linear.bias.fill_(1.0)
            weights = model(torch.randn(2, 3, 16, 24), output_attentions=True).attentions[0][0, 0]
        block = weights[1 + registers :, 1 + registers :]
        blocks.append(block / block.sum(-1, keepdim=True))
    torch.testing.assert_close(blocks[0], blocks[1], atol=1e-6, rtol=0)

    def logit(dy, dx):
        return sum(2 * math.cos(f * d) for d in (dx, dy) for f in (1, 0.01)) / math.sqrt(8)

    row = torch.tensor([logit(0, 0)] * 5 + [logit(y, x) for y in range(2) for x in range(3)]).softmax(0)
    torch.testing.assert_close(weights[0], row, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights[5], row, atol=1e-6, rtol=0)
    assert float(weights[0, 0]) == pytest.approx(0.11628477754638011, abs=1e-6)


def test_grids_are_compared_not_counts():
    table = torch.randn(1, 16, 4)
    assert interpolate_table(table, (4, 4), (4, 4)) is table
    moved = interpolate_table(table, (4, 4), (2, 8))
    assert moved.shape == (1, 16, 4) and not torch.allclose(moved, table)


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope"])
def test_tables_survive_from_pretrained(tiny_model, tmp_path, encoding):
    """There is no buffer that could come back as uninitialised memory, and what enters the blocks is the same."""
    model = tiny_model(position_encoding=encoding)
    assert not dict(model.named_buffers())
    model.save_pretrained(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        again = ViTGeoModel.from_pretrained(tmp_path, dtype=dtype).eval()
        assert not dict(again.named_buffers())
        seen = []
        for m in (model, again):
            handle = m.layers[0].register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args))
            with torch.no_grad():
                m(torch.zeros(1, 3, 32, 32))
            handle.remove()
        (tokens, rope), (tokens_again, rope_again) = seen
        torch.testing.assert_close(tokens_again.float(), tokens, atol=1e-6 if dtype == torch.float32 else 2e-2, rtol=0)
        if encoding == "rope":
            assert all(torch.equal(a, b) and b.dtype == torch.float32 for a, b in zip(rope, rope_again, strict=True))
