"""Masks and depth maps: every number as it is stored, and every wrong kind of file refused."""

import io

import numpy as np
import pytest
from PIL import Image

from hf_vitgeo.data.dense import (
    boxes_from_inclusive,
    boxes_from_xywh,
    check_mask,
    decode_depth,
    decode_mask,
    reduce_zero_label,
    remap_labels,
    resize_mask,
)


def encoded(image, **options):
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


CLASSES = np.array([[0, 1, 15, 20, 255]], np.uint8)


def palette():
    image = Image.fromarray(CLASSES).convert("P")
    image.putdata(CLASSES.ravel().tolist())
    image.putpalette([value for index in range(256) for value in (index * 37 % 256, index * 91 % 256, 7)])
    return image


@pytest.mark.parametrize("kind", ["palette", "grey", "bytes", "row", "path", "array", "16 bits"])
def test_a_mask_is_its_stored_numbers(kind, tmp_path):
    image = palette()
    image.save(tmp_path / "m.png")
    source = {
        "palette": image,
        "grey": Image.fromarray(CLASSES),
        "bytes": encoded(image),
        "row": {"bytes": encoded(image), "path": None},
        "path": str(tmp_path / "m.png"),
        "array": CLASSES,
        "16 bits": encoded(Image.fromarray(CLASSES.astype(np.uint16))),
    }[kind]
    assert decode_mask(source).tolist() == CLASSES.tolist()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: palette().convert("RGB"), "mode RGB has colours, not classes"),
        (lambda: palette().convert("RGBA"), "mode RGBA"),
        (lambda: Image.fromarray(CLASSES.astype(np.float32)), "mode F"),
        (lambda: encoded(palette())[:-30], "cannot be decoded|truncated"),
        (lambda: b"", "empty"),
        (lambda: -CLASSES.astype(np.int64), "class -255"),
        (lambda: CLASSES.astype(float), "whole numbers, got float64"),
        (lambda: CLASSES[None], r"of shape \(1, 1, 5\)"),
    ],
)
def test_what_is_no_mask_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        decode_mask(source())


def test_labels_are_moved_in_a_copy_and_once():
    mask = np.array([[0, 1, 150, 255]])
    assert reduce_zero_label(mask).tolist() == [[255, 0, 149, 255]]
    assert reduce_zero_label(mask.astype(np.uint8)).tolist() == [[255, 0, 149, 255]]
    assert remap_labels(mask, {0: 1, 1: 0, 7: 3}).tolist() == [[1, 0, 255, 255]]
    assert mask.tolist() == [[0, 1, 150, 255]]


def test_a_class_that_does_not_exist_is_named():
    mask = np.array([[0, 20, 255, 21]])
    assert check_mask(mask[:, :3], 21, "row 3").tolist() == [[0, 20, 255]]
    with pytest.raises(ValueError, match="row 3: 1 pixels have classes outside 0 to 20 .* such as 21"):
        check_mask(mask, 21, "row 3")


def test_masks_are_resized_without_new_classes():
    assert resize_mask(CLASSES, 1, 10).tolist() == [[0, 0, 1, 1, 15, 15, 20, 20, 255, 255]]
    reference = np.asarray(Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8)).resize((5, 4), 0))
    assert resize_mask(np.arange(48, dtype=np.uint8).reshape(6, 8), 4, 5).tolist() == reference.tolist()


def test_depth_in_metres():
    stored = np.array([[0, 1, 1500, 65535]], np.uint16)
    np.testing.assert_allclose(decode_depth(stored), [[0, 0.001, 1.5, 65.535]], rtol=1e-6)
    np.testing.assert_allclose(decode_depth(encoded(Image.fromarray(stored))), [[0, 0.001, 1.5, 65.535]], rtol=1e-6)
    np.testing.assert_allclose(decode_depth(stored, "kitti"), [[0, 1 / 256, 1500 / 256, 65535 / 256]], rtol=1e-6)
    rotated = np.array([[1500 << 3, (1500 << 3 | 1500 >> 13) & 0xFFFF, 9000 << 3 & 0xFFFF | 9000 >> 13]], np.uint16)
    np.testing.assert_allclose(decode_depth(rotated, "sunrgbd"), [[1.5, 1.5, 9.0]], rtol=1e-6)
    metres = np.array([[2.5, np.nan, np.inf, -1.0, 0.0]])
    assert decode_depth(metres).tolist() == [[2.5, 0, 0, 0, 0]]
    assert decode_depth(Image.fromarray(metres.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: CLASSES, {}, "needs 16 bits or floats, got uint8"),
        (lambda: Image.fromarray(CLASSES), {}, "mode L has 8 bits"),
        (lambda: palette().convert("RGB"), {}, "mode RGB"),
        (lambda: np.zeros((2, 2), np.uint16), {"encoding": "feet"}, "encoding is 'feet'; allowed are millimetres"),
        (lambda: np.zeros(3), {}, r"got shape \(3,\)"),
    ],
)
def test_what_is_no_depth_is_refused(source, options, message):
    with pytest.raises(ValueError, match=message):
        decode_depth(source(), **options)


def test_boxes_end_where_the_object_ends():
    assert boxes_from_xywh([[10, 20, 5, 6]]).tolist() == [[10, 20, 15, 26]]
    assert boxes_from_inclusive([0, 0, 63, 63]).tolist() == [[0, 0, 64, 64]]
