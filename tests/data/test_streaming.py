"""Streams: every row once, in an order that neither workers nor a resume change, and bad rows named."""

import io

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from hf_vitgeo.data.streaming import StreamedEvaluation, StreamedSamples, StreamSampler, load_stream
from hf_vitgeo.data.transforms import eval_transform, train_transform

HALF = ((0.5,) * 3, (0.5,) * 3)
N = 24


def encoded(number):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (number, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(folder, rows, names=("a", "b"), shards=3):
    """Parquet shards with pictures whose red value is the number of the row."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=list(names)) if names else datasets.Value("int64"),
        }
    )
    folder.mkdir()
    for shard in range(shards):
        part = rows[shard::shards]
        table = datasets.Dataset.from_dict(
            {"image": [{"bytes": cell, "path": None} for cell, _ in part], "label": [label for _, label in part]},
            features=features,
        )
        table.to_parquet(folder / f"train-{shard:05d}-of-{shards:05d}.parquet")
    return str(folder)


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch):
    """datasets sleeps five seconds at the end of each shuffled pass, for a fault of pyarrow at shutdown."""
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0.1)


@pytest.fixture
def stream(tmp_path):
    return load_stream(write(tmp_path / "rows", [(encoded(i), i % 2) for i in range(N)]), "train")


def reds(loader):
    return [round((value.item() * 0.5 + 0.5) * 255) for batch in loader for value in batch["pixel_values"][:, 0, 0, 0]]


def loader_of(stream, sampler, workers=0, transform=None):
    samples = StreamedSamples(transform or eval_transform(16, *HALF), 0, stream.origin)
    return DataLoader(samples, batch_size=4, sampler=sampler, num_workers=workers)


def test_columns_and_classes_are_found(stream):
    assert stream.class_names == ("a", "b")
    assert len(list(stream.read(0, 1))) == N


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_each_row_goes_to_one_process(stream, world_size):
    shares = [[cell["bytes"] for cell, _ in stream.read(rank, world_size, 5, 8)] for rank in range(world_size)]
    assert sorted(sum(shares, [])) == sorted(encoded(i) for i in range(N))


def test_order_does_not_depend_on_workers_and_differs_by_epoch(stream):
    def order(workers, epoch):
        sampler = StreamSampler(stream, seed=1, buffer=8, batch_size=4, num_batches=6)
        sampler.set_epoch(epoch)
        return reds(loader_of(stream, sampler, workers))

    assert order(0, 0) == order(2, 0) != order(0, 1)
    assert sorted(order(0, 0)) == sorted(order(0, 1)) == list(range(N))


def test_a_resume_goes_on_in_the_middle_without_decoding_what_was_seen(stream, monkeypatch):
    sampler = StreamSampler(stream, seed=1, buffer=8, batch_size=4, num_batches=6)
    augment = train_transform(16, *HALF, policy="color_jitter")
    whole = torch.cat([batch["pixel_values"] for batch in loader_of(stream, sampler, transform=augment)])
    sampler.set_epoch(0, skip_batches=4)
    assert len(sampler) == 8
    from hf_vitgeo.data import streaming

    decoded, real = [], streaming.decode_row
    monkeypatch.setattr(streaming, "decode_row", lambda *cell: (decoded.append(1), real(*cell))[1])
    rest = torch.cat([batch["pixel_values"] for batch in loader_of(stream, sampler, transform=augment)])
    assert torch.equal(rest, whole[16:]) and len(decoded) == 8


def test_a_share_that_ends_early_goes_on_with_another_shuffle(stream):
    sampler = StreamSampler(stream, seed=1, buffer=8, batch_size=4, num_batches=8)
    found = reds(loader_of(stream, sampler))
    assert len(found) == 32 and sorted(found[:N]) == list(range(N)) and found[N:] != found[:8]


def test_evaluation_reads_everything_once(stream):
    parts = []
    for rank in range(2):
        samples = StreamedEvaluation(stream, eval_transform(16, *HALF), rank, 2)
        parts += reds(DataLoader(samples, batch_size=4))
    assert sorted(parts) == list(range(N))


def test_bad_rows_are_named_or_left_out(tmp_path):
    rows = [(encoded(i), i % 2) for i in range(6)]
    rows[2] = (encoded(2)[:50], 0)
    bad = load_stream(write(tmp_path / "bad", rows, shards=1), "train")
    with pytest.raises(ValueError, match="row 2 of .*bad"):
        list(StreamedEvaluation(bad, eval_transform(16, *HALF)))
    skipping = load_stream(str(tmp_path / "bad"), "train", skip_bad_images=True)
    with pytest.warns(UserWarning, match="left out 1 rows.*\n.*row 2 "):
        assert len(list(skipping.read(0, 1))) == 5


def test_labels_are_checked(tmp_path):
    unnamed = write(tmp_path / "unnamed", [(encoded(0), 3)], names=None, shards=1)
    with pytest.raises(ValueError, match="does not name its classes.*ClassLabel"):
        load_stream(unnamed, "train")
    without = load_stream(write(tmp_path / "missing", [(encoded(0), 0), (encoded(1), -1)], shards=1), "train")
    with pytest.raises(ValueError, match=r"row 1 .*label (None|-1)"):
        list(without.read(0, 1))
    with pytest.raises(ValueError, match="valid"):
        load_stream(unnamed, "valid")


def test_a_subset_is_drawn_from_a_shuffled_stream(tmp_path):
    folder = write(tmp_path / "rows", [(encoded(i), i % 2) for i in range(N)])
    few = load_stream(folder, "train", max_samples=6, seed=1, buffer=N)
    found = [cell["bytes"] for cell, _ in few.read(0, 1)]
    assert len(found) == 6 and found != [encoded(i) for i in range(6)] and few.num_rows in (None, 6)
    assert sorted(found) == sorted(cell["bytes"] for cell, _ in few.read(0, 1, 3, 4))


def test_numpy_is_not_touched_by_reading(stream):
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    list(stream.read(0, 1, 5, 8))
    assert (np.random.get_state()[1] == before).all()
