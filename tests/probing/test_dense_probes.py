"""Windows, patch maps and the linear heads on them: labels as features are learned, noise is not."""

import numpy as np
import pytest
import torch

from hf_vitgeo.probing.dense_training import Schedule, Windows, depth_probe, segmentation_probe
from hf_vitgeo.probing.patch_maps import PatchMaps, patch_maps, stitch, window_places

SHORT = Schedule(steps=150, batch_size=8, rate=0.05, weight_decay=0.0, warmup_steps=10)


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (100, 40)])
@pytest.mark.parametrize("stride", [(32, 32), (21, 13), (1, 32)])
def test_windows_cover_a_picture_and_stay_inside(size, stride):
    places = window_places(size, (32, 32), stride)
    seen = np.zeros(size, int)
    for top, left in places:
        assert 0 <= top <= size[0] - 32 and 0 <= left <= size[1] - 32
        seen[top : top + 32, left : left + 32] += 1
    assert seen.min() >= 1 and len(set(places)) == len(places)
    if size == (32, 32):
        assert places == [(0, 0)]


@pytest.mark.parametrize(
    ("size", "stride", "message"),
    [((31, 40), (8, 8), "smaller than a window"), ((40, 40), (33, 8), "stride"), ((40, 40), (0, 8), "stride")],
)
def test_impossible_windows_are_refused(size, stride, message):
    with pytest.raises(ValueError, match=message):
        window_places(size, (32, 32), stride)


def test_stitched_windows_are_the_picture():
    whole = torch.randn(3, 50, 70)
    places = window_places((50, 70), (32, 32), (20, 11))
    windows = torch.stack([whole[:, top : top + 32, left : left + 32] for top, left in places])
    torch.testing.assert_close(stitch(windows, places, (50, 70)), whole)


@pytest.mark.parametrize("side", [32, 48])
def test_patch_maps_are_normed_tokens_of_each_layer(tiny_model, tmp_path, side):
    model = tiny_model(num_register_tokens=2, num_hidden_layers=3)
    pictures = torch.randn(5, 3, side, side)
    found = patch_maps(model, pictures.split(2), 5, tmp_path / "maps", layers=[1, 3])
    with torch.no_grad():
        hidden = model(pictures, output_hidden_states=True, interpolate_pos_encoding=True).hidden_states
        normed = [model.layernorm(hidden[layer]) for layer in (1, 3)]
    rows = side // 4
    assert found.grid_size == (rows, rows) and found.patches.dtype == np.float16
    for layer, tokens in zip((1, 3), normed, strict=True):
        maps = found.batch(np.array([0, 4]), layer, with_cls=True)
        assert maps.shape == (2, 64, rows, rows)
        expected = tokens[[0, 4], 3:].transpose(1, 2).unflatten(2, (rows, rows))
        torch.testing.assert_close(maps[:, :32], expected, atol=5e-3, rtol=2e-3)  # float16 on disk
        torch.testing.assert_close(maps[:, 32:, 2, 1], tokens[[0, 4], 0], atol=5e-3, rtol=2e-3)
        torch.testing.assert_close(found.batch(np.array([0, 4]), layer, with_cls=False), maps[:, :32])
    size = sum(path.stat().st_size for path in (tmp_path / "maps").iterdir())
    assert 2 * 5 * 2 * (rows**2 + 1) * 32 <= size < 2 * 5 * 2 * (rows**2 + 1) * 32 + 1000


def test_patch_maps_refuse_what_they_cannot_give(tiny_model, tmp_path, pictures):
    model = tiny_model()
    with pytest.raises(ValueError, match=r"layers are \(3,\); the model has 1 to 2"):
        patch_maps(model, [pictures], 3, tmp_path, layers=[3])
    with pytest.raises(ValueError, match="take 0.0 GiB on disk; allowed are 0.0 GiB: use fewer pictures or layers"):
        patch_maps(model, [pictures], 3, tmp_path, max_bytes=1000)
    with pytest.raises(ValueError, match="there are 3 windows; 4 were announced"):
        patch_maps(model, [pictures], 4, tmp_path)
    with pytest.raises(ValueError, match="windows 0 to 2 are not finite in float16"):
        patch_maps(model, [pictures * float("nan")], 3, tmp_path)
    assert not any(module._forward_hooks for module in model.modules())


def split(targets, features):
    """One window a picture, a patch of one pixel; `features` (n, D, rows, columns)."""
    maps = torch.as_tensor(features).flatten(2).transpose(1, 2)[:, None].numpy().astype(np.float16)
    side = targets.shape[1:]
    pooled = np.zeros((len(targets), 1, maps.shape[-1]), np.float16)
    windows = Windows([[(0, 0)]] * len(targets), [side] * len(targets), list(targets), side)
    return PatchMaps(maps, pooled, side, (1,)), windows


def one_hot(classes, count):
    return np.moveaxis(np.eye(count, dtype=np.float32)[np.where(classes == 255, 0, classes)], -1, 1)


def test_labels_as_features_reach_an_iou_of_one_and_noise_gives_chance():
    rng = np.random.default_rng(0)
    masks = [rng.choice([0, 1, 2, 3, 255], (n, 6, 7), p=[0.24] * 4 + [0.04]) for n in (24, 12)]
    (train, windows), (test, test_windows) = (split(mask, one_hot(mask, 4)) for mask in masks)
    seen = []
    found = segmentation_probe(
        train, windows, test, test_windows, 4, layer=1, schedule=SHORT, on_prediction=lambda n, p: seen.append(p)
    )
    assert found["miou"] == 1.0 and len(seen) == 12 and seen[0].shape == (6, 7)
    noise = [split(mask, rng.normal(size=(len(mask), 4, 6, 7)).astype(np.float32)) for mask in masks]
    by_chance = segmentation_probe(*noise[0], *noise[1], 4, layer=1, schedule=SHORT)
    assert by_chance["pixel_accuracy"] < 0.35 and by_chance["miou"] < 0.25
    again = segmentation_probe(*noise[0], *noise[1], 4, layer=1, schedule=SHORT)
    assert again["miou"] == by_chance["miou"]


def test_cls_helps_where_the_picture_decides():
    """Every pixel of a picture has its picture's class, which [CLS] alone knows."""
    rng = np.random.default_rng(0)
    found = {}
    splits = []
    for n in (30, 20):
        classes = rng.integers(0, 2, n)
        maps, windows = split(
            np.broadcast_to(classes[:, None, None], (n, 4, 4)).copy(), rng.normal(size=(n, 2, 4, 4)).astype(np.float32)
        )
        pooled = np.eye(2, dtype=np.float16)[classes][:, None]
        splits += [PatchMaps(maps.patches, pooled, maps.grid_size, maps.layers), windows]
    for with_cls in (False, True):
        found[with_cls] = segmentation_probe(*splits, 2, layer=1, with_cls=with_cls, schedule=SHORT)["miou"]
    assert found[True] == 1.0 and found[False] < 0.7


def test_depths_as_features_are_read_off():
    rng = np.random.default_rng(0)
    levels = np.array([1.0, 2.5, 7.0], np.float32)
    splits, noise = [], []
    for n in (30, 12):
        kinds = rng.integers(0, 3, n)
        depth = np.broadcast_to(levels[kinds][:, None, None], (n, 2, 3)).copy()
        features = np.broadcast_to(np.eye(3, dtype=np.float32)[kinds][:, :, None, None], (n, 3, 2, 3)).copy()
        depth[:, 0, 0] = 0  # not known
        splits += split(depth, features)
        noise += split(depth, rng.normal(size=features.shape).astype(np.float32))
    longer = Schedule(steps=600, batch_size=8, rate=0.05, weight_decay=0.0, warmup_steps=10)
    found = depth_probe(*splits, layer=1, with_cls=False, schedule=longer)
    assert found["rmse"] < 0.1 and found["delta1"] == 1 and found["n_images"] == 12
    by_chance = depth_probe(*noise, layer=1, with_cls=False, schedule=SHORT)
    assert by_chance["rmse"] > 1.0


def test_a_batch_without_any_label_is_survived():
    masks = np.full((8, 3, 3), 255)
    maps, windows = split(masks, np.zeros((8, 2, 3, 3), np.float32))
    found = segmentation_probe(maps, windows, maps, windows, 2, layer=1, schedule=SHORT)
    assert np.isnan(found["miou"]) and found["n_pixels"] == 0


def test_targets_of_windows_are_cut_where_the_pictures_are():
    masks = [np.arange(48).reshape(6, 8), np.arange(16).reshape(4, 4)]
    places = [[(0, 0), (2, 4)], [(0, 0)]]
    windows = Windows(places, [(6, 8), (8, 8)], masks, (4, 4))
    cut = windows.window_targets()
    assert cut[1].tolist() == masks[0][2:6, 4:8].tolist()
    assert cut[2].tolist() == np.kron(masks[1][:2, :2], np.ones((2, 2), int)).tolist()
    assert [(rows.tolist(), number) for rows, number in windows.by_picture()] == [([0, 1], 0), ([2], 1)]
