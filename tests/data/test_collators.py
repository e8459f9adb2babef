"""CutMix and MixUp: labels that say what is in the picture, and draws that differ by batch, worker and epoch."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hf_vitgeo.data.collators import CutMixCollator, MixUpCollator, cutmix_box
from hf_vitgeo.data.sampling import ArrayImages, EpochSampler, TrainingSamples
from hf_vitgeo.data.transforms import eval_transform

# case A09: lambda, height, width, row, column -> box and the share that is pasted
BOXES = [
    (0.36, 32, 32, 0, 0, (0, 12, 0, 12), 0.140625),
    (0.36, 32, 32, 31, 31, (19, 32, 19, 32), 0.1650390625),
    (0.36, 32, 32, 16, 16, (4, 28, 4, 28), 0.5625),
    (0.36, 32, 32, 0, 16, (0, 12, 4, 28), 0.28125),
    (0.19, 16, 48, 2, 40, (0, 9, 19, 48), 0.33984375),
    (0.0, 32, 32, 16, 16, (0, 32, 0, 32), 1.0),
    (1.0, 32, 32, 5, 5, (5, 5, 5, 5), 0.0),
]


@pytest.mark.parametrize(("keep", "height", "width", "row", "column", "box", "share"), BOXES)
def test_boxes_are_clipped_at_the_border(keep, height, width, row, column, box, share):
    rows, columns = cutmix_box(height, width, keep, row, column)
    assert (rows.start, rows.stop, columns.start, columns.stop) == box
    assert (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width) == share


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [(32, 32), (16, 48)])
def test_cutmix_labels_are_the_pasted_area(smoothing, size):
    """Case A09: also where the box is cut off, and with label smoothing applied once."""
    rows = [{"pixel_values": torch.full((3, *size), float(i)), "labels": [3, 7, 7][i]} for i in range(3)]
    collate = CutMixCollator(num_classes=10, alpha=1.0, probability=1.0, label_smoothing=smoothing)
    clipped = 0
    for _ in range(200):
        batch = collate(rows)
        for i in range(3):
            target = torch.full((10,), smoothing / 10)
            for source in range(3):
                area = float((batch["pixel_values"][i, 0] == source).float().mean())
                target[[3, 7, 7][source]] += (1 - smoothing) * area
            torch.testing.assert_close(batch["labels"][i], target, atol=1e-6, rtol=0)
            clipped += 0 < float((batch["pixel_values"][i, 0] != i).float().mean()) < 0.2
    assert clipped > 20


def test_mixup_is_a_convex_combination():
    rows = [{"pixel_values": torch.full((3, 4, 4), float(i)), "labels": i} for i in range(2)]
    collate = MixUpCollator(num_classes=2, alpha=1.0, probability=1.0)
    for _ in range(20):
        batch = collate(rows)
        torch.testing.assert_close(batch["labels"][:, 1], batch["pixel_values"][:, 0, 0, 0], atol=1e-6, rtol=0)
        torch.testing.assert_close(batch["labels"].sum(1), torch.ones(2))


def test_probability_is_the_share_of_mixed_batches():
    rows = [{"pixel_values": torch.full((3, 8, 8), float(i)), "labels": i} for i in range(16)]
    collate = MixUpCollator(num_classes=16, probability=0.3)
    mixed = sum(int(collate(rows)["labels"].max(1).values.min() < 1) for _ in range(400))
    assert 80 < mixed < 160
    plain = CutMixCollator(num_classes=16, probability=0.0)(rows)
    assert torch.equal(plain["labels"], torch.eye(16))


def draws(loader, epochs=2, sampler=None):
    seen = []
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        seen += [round(float(batch["labels"].max(1).values.min()), 6) for batch in loader]
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_seed_workers_and_epochs_draw_anew(workers):
    """Case C17: a collator that owned its generator would give 4 values of 16."""
    rows = [{"pixel_values": torch.full((3, 32, 32), float(i)), "labels": i % 8} for i in range(32)]

    def run(seed):
        torch.manual_seed(seed)
        collate = CutMixCollator(num_classes=8, alpha=1.0, probability=1.0)
        return draws(DataLoader(rows, batch_size=4, collate_fn=collate, num_workers=workers))

    a, b, c = run(0), run(0), run(1)
    assert len(set(a)) >= 13 and a == b and a != c and a[:8] != a[8:]


def test_with_a_seed_the_number_of_workers_does_not_matter():
    images = ArrayImages(np.random.default_rng(0).integers(0, 256, (32, 32, 32, 3), np.uint8), np.arange(32) % 8)
    samples = TrainingSamples(images, eval_transform(32, (0.5,) * 3, (0.5,) * 3), seed=0)

    def run(workers, seed):
        sampler = EpochSampler(32, 0, batch_size=4)
        collate = CutMixCollator(num_classes=8, probability=1.0, seed=seed)
        torch.manual_seed(workers)
        loader = DataLoader(samples, batch_size=4, sampler=sampler, collate_fn=collate, num_workers=workers)
        return draws(loader, sampler=sampler)

    assert run(0, 5) == run(2, 5) != run(0, 6)
    assert len(set(run(0, 5))) >= 13


def test_bad_input_is_named():
    for name, value in (("num_classes", 0), ("alpha", 0.0), ("probability", 1.5), ("label_smoothing", 1.0)):
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            CutMixCollator(**{"num_classes": 10, name: value})
    row = {"pixel_values": torch.zeros(3, 4, 4), "labels": 10}
    with pytest.raises(ValueError, match=r"labels are \[10\]; allowed are 0 to 9"):
        CutMixCollator(num_classes=10)([row])
    with pytest.raises(ValueError, match="rows with epoch and index"):
        CutMixCollator(num_classes=11, seed=0)([row])
