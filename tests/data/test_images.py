"""load_rgb: every kind of picture gives the right RGB pixels or an error that names it."""

import os
import subprocess
import sys
import warnings
from contextlib import ExitStack
from io import BytesIO
from itertools import product

import numpy as np
import pytest
from PIL import Image, ImageFile

from hf_vitgeo.data import images
from hf_vitgeo.data.images import load_rgb, resize

RED = (255, 0, 0)


def encoded(image, file_format, **options):
    buffer = BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def pixels(source):
    image = load_rgb(source)
    assert type(image) is Image.Image and image.mode == "RGB"
    return np.asarray(image)


@pytest.fixture
def colours():
    return np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def test_all_kinds_of_source_give_the_same_pixels(colours, tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(colours).save(path)
    content = path.read_bytes()
    nowhere = str(tmp_path / "nowhere.png")
    sources = [path, str(path), content, bytearray(content), colours, Image.fromarray(colours), Image.open(path)]
    sources += [{"bytes": content, "path": nowhere}, {"bytes": None, "path": str(path)}, {"bytes": content}]
    for source in sources:
        np.testing.assert_array_equal(pixels(source), colours)


def test_grey_array_is_grey(colours):
    np.testing.assert_array_equal(pixels(colours[..., 0]), colours[..., :1].repeat(3, 2))


def test_the_source_is_neither_changed_nor_shared(colours):
    source = Image.fromarray(colours)
    load_rgb(source).paste(RED, (0, 0, 9, 6))
    np.testing.assert_array_equal(np.asarray(source), colours)


def test_files_are_closed(colours, tmp_path):
    path = tmp_path / "moving.gif"
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, (0, 0, 255))]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        pytest.skip("no list of open files on this system")
    before = len(os.listdir(folder))
    kept = [load_rgb(path) for _ in range(5)]
    assert len(kept) == 5 and len(os.listdir(folder)) == before


@pytest.mark.parametrize("file_format", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])
def test_first_frame_of_many(file_format):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, (0, 0, 255))]
    content = encoded(frames[0], file_format, save_all=True, append_images=frames[1:])
    assert Image.open(BytesIO(content)).n_frames == 2
    assert np.abs(pixels(content).astype(int) - RED).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation, colours):
    turned = {
        1: colours,
        2: colours[:, ::-1],
        3: colours[::-1, ::-1],
        4: colours[::-1],
        5: colours.transpose(1, 0, 2),
        6: np.rot90(colours, -1),
        7: np.rot90(colours, 2).transpose(1, 0, 2),
        8: np.rot90(colours),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(colours), "PNG", exif=exif)), turned[orientation])


def test_broken_exif_is_no_reason_to_refuse(colours):
    content = encoded(Image.fromarray(colours), "JPEG", exif=b"Exif\0\0no exif at all")
    np.testing.assert_array_equal(pixels(content), np.asarray(Image.open(BytesIO(content))))


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "YCbCr", "HSV", "LAB", "RGBX"])
def test_opaque_modes_are_converted_as_pillow_does(mode, colours):
    source = Image.fromarray(colours).convert("L" if mode == "LAB" else mode)
    source = Image.merge("LAB", [source] * 3) if mode == "LAB" else source
    np.testing.assert_array_equal(pixels(source), np.asarray(source.convert("RGB")))


def test_cmyk_jpeg_is_not_inverted():
    white = encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")
    assert Image.open(BytesIO(white)).mode == "CMYK"
    assert pixels(white).min() == 255


def test_palette_without_transparency(colours):
    quantized = Image.fromarray(colours).quantize(16)
    np.testing.assert_array_equal(pixels(encoded(quantized, "PNG")), np.asarray(quantized.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_alpha_is_composited_over_white(mode):
    source = Image.new("RGBA", (3, 1))
    for x, alpha in enumerate((0, 128, 255)):
        source.putpixel((x, 0), (100, 100, 100, alpha))
    source = source.convert(mode)
    assert source.mode == mode
    half = round(100 * 128 / 255 + 255 * 127 / 255)
    assert np.abs(pixels(source)[0].astype(int) - [[255], [half], [100]]).max() <= 1


def palette_picture():
    source = Image.new("P", (2, 1))
    source.putpalette([255, 0, 0, 0, 0, 255])
    source.putpixel((1, 0), 1)
    return source


@pytest.mark.parametrize("transparency", [0, bytes([0, 255])])
def test_transparent_palette_entry_is_white(transparency):
    content = encoded(palette_picture(), "PNG", transparency=transparency)
    assert pixels(content).tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_transparent_gif_is_white():
    assert pixels(encoded(palette_picture(), "GIF", transparency=0))[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (1, 2, 3)), ("L", 7), ("1", 0), ("I;16", 5000)])
def test_transparent_colour_of_a_png_is_white(mode, colour):
    source = Image.new(mode, (2, 2), colour)
    assert pixels(encoded(source, "PNG", transparency=colour)).min() == 255
    assert pixels(encoded(source, "PNG")).max() < 255


RAMP = (np.arange(256) * 257).astype(np.uint16)[None].repeat(4, 0)


def test_sixteen_bit_grey_keeps_its_levels(tmp_path):
    """Case C21: Pillow's own conversion leaves two levels, nearly all of it white."""
    path = tmp_path / "ramp.png"
    Image.fromarray(RAMP).save(path)
    assert len(np.unique(np.asarray(Image.open(path).convert("RGB")))) == 2
    np.testing.assert_array_equal(pixels(path), np.arange(256)[None, :, None].repeat(4, 0).repeat(3, 2))


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_of_every_format(file_format):
    # A 16-bit PGM opens as mode I, the others as I;16.
    content = encoded(Image.fromarray(RAMP), file_format)
    assert Image.open(BytesIO(content)).mode == ("I" if file_format == "PPM" else "I;16")
    assert pixels(content)[0, [0, 64, 128, 255], 0].tolist() == [0, 64, 128, 255]


@pytest.mark.parametrize(("mode", "dtype"), [("I;16", "<u2"), ("I;16L", "<u2"), ("I;16B", ">u2")])
def test_sixteen_bit_byte_orders(mode, dtype):
    source = Image.frombytes(mode, (256, 4), RAMP.astype(dtype).tobytes())
    assert pixels(source)[0, :, 1].tolist() == list(range(256))


def sixteen_bit_png(color_type, array):
    """Write what Pillow cannot: a 16-bit PNG of several channels."""
    import struct
    import zlib

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = array.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_sixteen_bit_colour_keeps_its_levels():
    assert pixels(sixteen_bit_png(2, np.stack([RAMP] * 3, -1)))[0, :, 2].tolist() == list(range(256))


@pytest.mark.parametrize(("color_type", "channels"), [(4, 1), (6, 3)])
def test_sixteen_bit_alpha(color_type, channels):
    half = np.full_like(RAMP, 0x8080)
    for alpha, expected in ((RAMP * 0, 255), (half, (255 + 127) / 2), (RAMP * 0 + 0xFFFF, 0)):
        black = np.stack([RAMP * 0] * channels + [alpha], -1)
        assert np.abs(pixels(sixteen_bit_png(color_type, black)) - expected).max() <= 64 * (alpha is half)
    np.testing.assert_array_equal(
        pixels(sixteen_bit_png(color_type, np.stack([RAMP * 0] * channels + [half], -1))), 127
    )


@pytest.mark.parametrize("values", [[[0, 70_000]], [[-1, 5]]])
def test_more_than_sixteen_bits_are_refused(values, tmp_path):
    path = tmp_path / "deep.tiff"
    Image.fromarray(np.array(values, np.int32)).save(path)
    with pytest.raises(ValueError, match=r"deep\.tiff.*mode I with values from .* more than 16 bits"):
        load_rgb(path)


def test_floats_are_refused(tmp_path):
    path = tmp_path / "depth.tiff"
    Image.fromarray(np.ones((2, 2), np.float32)).save(path)
    with pytest.raises(ValueError, match=r"depth\.tiff.*mode F holds floats"):
        load_rgb(path)


# As a PIL image only where Pillow opens the stump and fails at the pixels.
@pytest.mark.parametrize(
    ("file_format", "kind"),
    [*product(("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"), ("path", "bytes", "dict"))]
    + [*product(("JPEG", "PNG", "GIF", "BMP"), ("pil",))],
)
def test_truncated_pictures_are_refused(file_format, kind, tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    content = encoded(noise, file_format)
    path = tmp_path / "cut"
    path.write_bytes(content[: len(content) // 2])
    with ExitStack() as stack, pytest.raises(ValueError, match="picture: " if kind == "bytes" else "cut: ") as caught:
        if kind == "pil":
            source = stack.enter_context(Image.open(path))
        else:
            source = {"path": path, "bytes": path.read_bytes(), "dict": {"bytes": path.read_bytes(), "path": "cut"}}[
                kind
            ]
        load_rgb(source)
    assert caught.value.__cause__ is not None
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_empty_file_is_named(tmp_path):
    path = tmp_path / "empty.jpg"
    path.touch()
    for source in (path, {"bytes": b"", "path": "empty.jpg"}):
        with pytest.raises(ValueError, match=r"empty\.jpg: the file is empty"):
            load_rgb(source)
    with pytest.raises(ValueError, match="neither bytes nor a path"):
        load_rgb({"bytes": None, "path": None})


def test_text_is_no_picture(tmp_path):
    path = tmp_path / "notes.png"
    path.write_text("not a picture")
    with pytest.raises(ValueError, match=r"notes\.png: not a picture in any format"):
        load_rgb(path)


def test_a_file_that_cannot_be_opened_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        load_rgb(tmp_path / "missing.png")
    with pytest.raises(IsADirectoryError):
        load_rgb(tmp_path)


@pytest.mark.parametrize("array", [np.zeros((2, 2, 3)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2, 3), np.uint8)])
def test_other_arrays_are_refused(array):
    with pytest.raises(ValueError, match="an array must be uint8"):
        load_rgb(array)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="not int"):
        load_rgb(3)


@pytest.mark.parametrize("filter_action", ["error", "ignore"])
@pytest.mark.parametrize("factor", [1.5, 2.5])
def test_decompression_bombs_are_refused_however_warnings_are_set(factor, filter_action, monkeypatch, tmp_path):
    # Pillow warns from its limit on and raises from twice the limit on.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    path = tmp_path / "bomb.png"
    Image.new("L", (int(1000 * factor), 1)).save(path)
    with warnings.catch_warnings():
        warnings.simplefilter(filter_action, Image.DecompressionBombWarning)
        with pytest.raises(ValueError, match=r"bomb\.png: more than MAX_PIXELS = 1000 pixels"):
            load_rgb(path)


def test_the_limit_holds_for_pictures_in_memory_and_without_pillow_s_own(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    assert load_rgb(Image.new("L", (1000, 1))).size == (1000, 1)
    with pytest.raises(ValueError, match=r"MAX_PIXELS = 1000 pixels \(1001 x 1 pixels\)"):
        load_rgb(Image.new("L", (1001, 1)))


def test_icc_profiles_are_not_applied(colours):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(colours), "PNG", icc_profile=profile)), colours)


def test_resize_is_pil_bilinear_without_the_aspect(colours):
    image = Image.fromarray(colours)
    assert resize(image, 6, 9) is image
    resized = resize(image, 4, 3)
    assert resized.size == (3, 4)
    np.testing.assert_array_equal(np.asarray(resized), np.asarray(image.resize((3, 4), Image.Resampling.BILINEAR)))


def test_decoding_needs_no_torch():
    code = "import sys, hf_vitgeo.data.images, hf_vitgeo.data.datasets; print({'torch', 'datasets'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
