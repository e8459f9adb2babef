"""Shifts and pipelines: the pixels that paper A's and paper B's protocols give."""

import pickle
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import v2

from hf_vitgeo.data.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    NORMALIZATION,
    PAPER_SHIFTS,
    blur_shift,
    eval_transform,
    jpeg_shift,
    parse_shift,
    solarize,
    train_transform,
)


def wave(height=80, width=160):
    """A coloured picture with fine and coarse detail, on which JPEG and resizing do visible things."""
    y, x = np.mgrid[:height, :width]
    channels = [128 + 100 * np.sin(x / 7), 128 + 100 * np.cos(y / 5), 128 + 90 * np.sin((x + 2 * y) / 3)]
    return Image.fromarray(np.stack(channels, -1).round().astype(np.uint8))


def impulse(side, row, column):
    array = np.zeros((side, side, 3), np.uint8)
    array[row, column] = 255
    return Image.fromarray(array)


def through_jpeg(image, **options):
    buffer = BytesIO()
    image.save(buffer, "JPEG", **options)
    return np.asarray(Image.open(buffer).convert("RGB"))


def test_blur_is_a_gaussian_cut_off_at_the_kernel():
    """Case C18: sigma is not PIL's radius, and a kernel of 5 reaches two pixels."""
    weights = np.exp(-(np.arange(-2, 3) ** 2) / (2 * 2.5**2))
    weights /= weights.sum()
    expected = np.zeros((15, 15))
    expected[5:10, 5:10] = 255 * np.outer(weights, weights)
    blurred = np.asarray(blur_shift(impulse(15, 7, 7), sigma=2.5, kernel_size=5))
    np.testing.assert_array_equal(blurred, expected.round().astype(np.uint8)[..., None].repeat(3, 2))
    assert blurred[7, 7, 0] == 14 and blurred[5, 5, 0] == 7 and blurred[7, 10, 0] == 0
    by_radius = np.asarray(impulse(15, 7, 7).filter(ImageFilter.GaussianBlur(2.5)))
    assert by_radius[7, 7, 0] < 8


def test_blur_reflects_the_border():
    """Case C18: 47 by reflection, 12 if the border were black."""
    blurred = blur_shift(impulse(9, 1, 1), sigma=2.5, kernel_size=5)
    assert blurred.mode == "RGB" and np.asarray(blurred)[0, 0].tolist() == [47, 47, 47]


@pytest.mark.parametrize("as_type", ["RGB", "L"])
def test_solarize_inverts_from_the_threshold_on(as_type):
    """Case C18."""
    row = np.array([[0, 100, 127, 128, 200, 255]], np.uint8)
    solarized = np.asarray(solarize(Image.fromarray(row).convert(as_type), 128))
    assert solarized[0].reshape(6, -1)[:, 0].tolist() == [0, 100, 127, 127, 55, 0]


@pytest.mark.parametrize("threshold", [0.5, -1, 257])
def test_solarize_refuses_other_scales(threshold):
    with pytest.raises(ValueError, match="from 0 to 256"):
        solarize(wave(), threshold)


def test_jpeg_is_pil_s_with_subsampled_chroma():
    shifted = jpeg_shift(wave(), 5)
    assert type(shifted) is Image.Image and shifted.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(shifted), through_jpeg(wave(), quality=5, subsampling="4:2:0"))
    assert not np.array_equal(np.asarray(shifted), through_jpeg(wave(), quality=5, subsampling="4:4:4"))


@pytest.mark.parametrize("quality", [0, 101, 5.5, -3])
def test_jpeg_refuses_other_qualities(quality):
    with pytest.raises(ValueError, match="from 1 to 100"):
        jpeg_shift(wave(), quality)


@pytest.mark.parametrize(
    ("sigma", "kernel_size"), [(2.5, 4), (2.5, 0), (2.5, -1), (0, 5), (-1.0, 5), (float("nan"), 5)]
)
def test_blur_refuses_other_kernels(sigma, kernel_size):
    with pytest.raises(ValueError, match="kernel_size must be" if sigma == 2.5 else "sigma must be"):
        blur_shift(wave(), sigma, kernel_size)


def test_names_of_shifts():
    assert PAPER_SHIFTS == ("jpeg_q5", "blur_s2.5_k5")
    for name, expected in zip(PAPER_SHIFTS, (jpeg_shift(wave(), 5), blur_shift(wave(), 2.5, 5)), strict=True):
        shift = pickle.loads(pickle.dumps(parse_shift(name)))
        np.testing.assert_array_equal(np.asarray(shift(wave())), np.asarray(expected))
    assert parse_shift("blur_s3_k7").keywords == {"sigma": 3.0, "kernel_size": 7}


@pytest.mark.parametrize("name", ["jpeg", "jpeg_q", "jpeg_5", "blur_s2.5", "blur_s2.5_k5x", "noise", "", "jpeg_q-5"])
def test_unknown_names_of_shifts(name):
    with pytest.raises(ValueError, match=r"unknown shift .*jpeg_q<quality 1\.\.100> or blur_s<sigma>_k<odd kernel"):
        parse_shift(name)


@pytest.mark.parametrize("name", ["jpeg_q0", "jpeg_q101", "blur_s0_k5", "blur_s0.0_k5", "blur_s2.5_k4", "blur_s1_k0"])
def test_shifts_with_impossible_numbers(name):
    with pytest.raises(ValueError, match="must be"):
        parse_shift(name)


def test_eval_with_jpeg_after_the_resize():
    """Case C19: resize, then JPEG of quality 5, then the tensor; the wrong order is far away."""
    transform = eval_transform(64, IMAGENET_MEAN, IMAGENET_STD, shift=parse_shift("jpeg_q5"))
    resized = wave().resize((64, 64), Image.Resampling.BILINEAR)
    reference = through_jpeg(resized, quality=5)
    pixels = transform(wave())
    assert pixels.shape == (3, 64, 64) and pixels.dtype == torch.float32 and pixels.is_contiguous()
    restored = (pixels.numpy().transpose(1, 2, 0) * IMAGENET_STD + IMAGENET_MEAN) * 255
    np.testing.assert_allclose(restored, reference, atol=2e-3)
    before = Image.fromarray(through_jpeg(wave(), quality=5)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.abs(restored - np.asarray(before)).mean() > 3


@pytest.mark.parametrize("size", [48, (32, 64)])
@pytest.mark.parametrize("name", NORMALIZATION)
def test_eval_equals_torchvision(name, size):
    pipeline = v2.Compose(
        [
            v2.Resize((size, size) if isinstance(size, int) else size),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*NORMALIZATION[name]),
        ]
    )
    expected = pipeline(wave())
    torch.testing.assert_close(eval_transform(size, *NORMALIZATION[name])(wave()), expected, atol=1e-6, rtol=0)


def test_eval_leaves_the_right_size_alone_and_the_picture_unchanged():
    image = wave(32, 32)
    before = np.array(image)
    pixels = eval_transform(32, (0, 0, 0), (1, 1, 1))(image)
    np.testing.assert_allclose(pixels.numpy().transpose(1, 2, 0) * 255, before, atol=1e-4)
    np.testing.assert_array_equal(np.asarray(image), before)


@pytest.mark.parametrize("build", [eval_transform, train_transform])
def test_statistics_and_sizes_are_checked(build):
    half = NORMALIZATION["half"][0]
    for mean, std, culprit in [
        (half, (0.5, 0.0, 0.5), "std"),
        (half, (0.5, 0.5), "std"),
        ((0.5,), half, "mean"),
        ((123.7, 116.3, 103.5), half, "mean"),
        (half, (58.4, 57.1, 57.4), "std"),
        ((float("nan"),) * 3, half, "mean"),
    ]:
        with pytest.raises(ValueError, match=f"{culprit} must be three numbers"):
            build(32, mean, std)
    for size in (0, (32, -1)):
        with pytest.raises(ValueError, match="size must be positive"):
            build(size, half, half)


@pytest.mark.parametrize("build", [eval_transform, train_transform])
def test_transforms_can_be_pickled_and_want_rgb(build):
    transform = build(32, *NORMALIZATION["half"])
    assert pickle.loads(pickle.dumps(transform))(wave()).shape == (3, 32, 32)
    with pytest.raises(ValueError, match="mode L .* load_rgb"):
        transform(wave().convert("L"))


def crops(image, padding, flip=False):
    """Every crop that the padded picture has, as bytes."""
    canvas = np.pad(np.asarray(image), ((padding, padding), (padding, padding), (0, 0)))
    height, width = image.height, image.width
    found = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = canvas[top : top + height, left : left + width]
            found[crop.tobytes()] = (top, left, False)
            if flip:
                found[crop[:, ::-1].tobytes()] = (top, left, True)
    return found


def as_bytes(pixels):
    return (pixels.numpy().transpose(1, 2, 0) * 255).round().astype(np.uint8).tobytes()


def test_train_draws_every_crop_and_flip():
    image = wave(16, 16)
    transform = train_transform(16, (0, 0, 0), (1, 1, 1))
    expected = crops(image, 2, flip=True)
    assert len(expected) == 50
    torch.manual_seed(0)
    seen = [expected[as_bytes(transform(image))] for _ in range(600)]
    assert set(seen) == set(expected.values())
    assert 0.4 < np.mean([flipped for _, _, flipped in seen]) < 0.6


def test_train_without_flip_and_padding_is_eval():
    image = wave()
    transform = train_transform(32, *NORMALIZATION["imagenet"], padding=0, horizontal_flip=False)
    torch.testing.assert_close(transform(image), eval_transform(32, *NORMALIZATION["imagenet"])(image), atol=0, rtol=0)


@pytest.mark.parametrize(("size", "padding"), [(32, 4), (64, 8), ((32, 64), 4)])
def test_default_padding_is_an_eighth(size, padding):
    assert train_transform(size, *NORMALIZATION["half"]).keywords["padding"] == padding


def test_negative_padding_is_refused():
    with pytest.raises(ValueError, match="padding must not be negative"):
        train_transform(32, *NORMALIZATION["half"], padding=-1)


def test_train_is_seeded_by_torch_alone_in_a_fixed_number_of_draws():
    transform = train_transform(32, *NORMALIZATION["half"])
    states = []
    for seed in range(10):
        torch.manual_seed(seed)
        first = transform(wave())
        states.append(torch.randint(1 << 30, ()).item())
        np.random.seed(seed + 1)
        torch.manual_seed(seed)
        torch.testing.assert_close(transform(wave()), first, atol=0, rtol=0)
        torch.manual_seed(seed)
        torch.randint(9, (2,)), torch.randint(2, ())
        assert torch.randint(1 << 30, ()).item() == states[-1]


HALF = ((0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crop": "resized"},
        {"policy": "autoaugment_cifar10"},
        {"policy": "autoaugment_imagenet"},
        {"policy": "color_jitter", "crop": "none", "horizontal_flip": False},
        {"cutout": 12, "crop": "none", "horizontal_flip": False},
    ],
    ids=str,
)
def test_training_pictures_of_a_batch_differ(options):
    """Randomness by picture: torchvision on a batch would draw one set of parameters for all of it."""
    augment = train_transform(32, *HALF, **options)
    torch.manual_seed(0)
    batch = torch.stack([augment(wave()) for _ in range(16)])
    assert batch.shape == (16, 3, 32, 32) and batch.abs().max() <= 1
    assert len({tuple(row.flatten().tolist()) for row in batch}) >= 12
    torch.manual_seed(0)
    again = torch.stack([pickle.loads(pickle.dumps(augment))(wave()) for _ in range(16)])
    assert torch.equal(again, batch)


def test_policies_are_torchvision_s_after_crop_and_flip():
    augment = train_transform(32, *HALF, crop="none", horizontal_flip=False, policy="autoaugment_cifar10")
    small = wave().resize((32, 32), Image.Resampling.BILINEAR)
    policy = v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)
    for seed in range(20):
        torch.manual_seed(seed)
        found = augment(wave())
        torch.manual_seed(seed)
        expected = torch.from_numpy(np.asarray(policy(small)).copy()).permute(2, 0, 1) / 255
        torch.testing.assert_close(found, (expected - 0.5) / 0.5)


def test_cutout_blanks_one_clipped_square():
    augment = train_transform(32, *HALF, crop="none", horizontal_flip=False, cutout=12)
    white = Image.new("RGB", (32, 32), "white")
    areas = []
    for seed in range(100):
        torch.manual_seed(seed)
        blank = augment(white)[0] == 0
        rows, columns = blank.any(1).sum().item(), blank.any(0).sum().item()
        assert blank.sum().item() == rows * columns and 6 <= rows <= 12 and 6 <= columns <= 12
        areas.append(rows * columns)
    assert max(areas) == 144 and min(areas) < 100


def test_resized_windows_are_torchvision_s():
    augment = train_transform(24, *HALF, crop="resized", horizontal_flip=False)
    window = v2.RandomResizedCrop((24, 24))
    torch.manual_seed(3)
    found = augment(wave())
    torch.manual_seed(3)
    expected = torch.from_numpy(np.asarray(window(wave())).copy()).permute(2, 0, 1) / 255
    torch.testing.assert_close(found, (expected - 0.5) / 0.5)


def test_unknown_crops_and_policies_are_refused():
    for name in ("crop", "policy"):
        with pytest.raises(ValueError, match=f"{name} is 'centre'; allowed are .*none"):
            train_transform(32, *HALF, **{name: "centre"})
    with pytest.raises(ValueError, match="cutout must not be negative"):
        train_transform(32, *HALF, cutout=-1)
