"""Augmentation of batches: what torchvision does to one picture at a time, with parameters for each of them."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from hf_vitgeo.data.device_augmentation import DEVICE_POLICIES, N_DRAWS, DeviceAugmentation, RawPicture

HALF = ((0.5,) * 3, (0.5,) * 3)


@pytest.fixture
def batch():
    return torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8), torch.rand(24, N_DRAWS)


def test_a_worker_only_reads_and_draws():
    found = RawPicture((16, 24))(Image.fromarray(np.full((40, 40, 3), 7, np.uint8)))
    assert found["pixel_values"].shape == (3, 16, 24) and found["pixel_values"].dtype == torch.uint8
    assert found["draws"].shape == (N_DRAWS,)


@pytest.mark.parametrize("policy", DEVICE_POLICIES)
def test_a_batch_is_its_pictures_one_by_one(batch, policy):
    augment = DeviceAugmentation(*HALF, padding=4, horizontal_flip=True, policy=policy, cutout=8)
    together = augment(*batch)
    for index in range(24):
        alone = augment(batch[0][index : index + 1], batch[1][index : index + 1])
        torch.testing.assert_close(together[index : index + 1], alone, atol=1e-6, rtol=0)
    assert len({tuple(row.flatten()[:200].tolist()) for row in together}) == 24


def test_crop_and_flip_are_windows_of_the_padded_picture(batch):
    pixels, draws = batch
    draws[:, 2] = torch.where(torch.arange(24) % 2 == 0, 0.2, 0.7)
    found = DeviceAugmentation(*HALF, padding=4, horizontal_flip=True)(pixels, draws)
    padded = torch.nn.functional.pad(pixels, [4] * 4)
    for index in range(24):
        top, left = (draws[index, :2] * 9).long().tolist()
        window = padded[index, :, top : top + 32, left : left + 32]
        window = window.flip(2) if index % 2 == 0 else window
        torch.testing.assert_close(found[index], (window / 255 - 0.5) / 0.5)


@pytest.mark.parametrize("policy", DEVICE_POLICIES[1:])
def test_the_policy_is_torchvision_s(batch, policy, monkeypatch):
    """The same decisions fed to torchvision's own AutoAugment give the same pixels."""
    pixels, draws = batch
    kind = v2.AutoAugmentPolicy.CIFAR10 if policy.endswith("cifar10") else v2.AutoAugmentPolicy.IMAGENET
    theirs = v2.AutoAugment(kind)
    found = DeviceAugmentation(*HALF, padding=0, horizontal_flip=False, policy=policy)(pixels, draws)
    for index in range(24):
        expected = decided(theirs, pixels[index], draws[index, 3:8].tolist(), monkeypatch)
        torch.testing.assert_close(found[index], (expected / 255 - 0.5) / 0.5, atol=1e-6, rtol=0)


def decided(theirs, picture, draws, monkeypatch):
    """Run torchvision's AutoAugment on one picture with these decisions in place of its random numbers."""
    chosen, queue = int(draws[0] * len(theirs._policies)), []
    for turn, (name, probability, _) in enumerate(theirs._policies[chosen]):
        whether, sign = draws[1 + 2 * turn : 3 + 2 * turn]
        queue.append(whether)
        levels, signed = theirs._AUGMENTATION_SPACE[name]
        if whether <= probability and signed and levels(10, 32, 32) is not None:
            queue.append(sign)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "randint", lambda *a, **k: torch.tensor(chosen))
        patched.setattr(torch, "rand", lambda *a, **k: torch.tensor(queue.pop(0)))
        return theirs(picture)


def test_without_anything_it_is_normalisation(batch):
    plain = DeviceAugmentation(*HALF, padding=0, horizontal_flip=False)(*batch)
    torch.testing.assert_close(plain, (batch[0] / 255 - 0.5) / 0.5)


def test_cutout_is_a_clipped_square(batch):
    white = torch.full((200, 3, 32, 32), 255, dtype=torch.uint8)
    found = DeviceAugmentation(*HALF, padding=0, horizontal_flip=False, cutout=12)(white, torch.rand(200, N_DRAWS))
    areas = (found[:, 0] == 0).sum((1, 2))
    assert areas.max() == 144 and 36 <= areas.min() < 100


def test_other_policies_are_refused():
    with pytest.raises(ValueError, match="policy is 'color_jitter'; on the device there are none"):
        DeviceAugmentation(*HALF, padding=0, horizontal_flip=False, policy="color_jitter")
