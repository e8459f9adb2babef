"""A split that is read as it comes: too large for this machine's disk, or not wanted on it.

Rows travel undecoded through the sampler, and the workers of the loader decode and augment them. So the order is the
same for any number of workers, and what a resumed run has seen already is skipped without decoding it.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

from hf_vitgeo.data.columns import find_columns
from hf_vitgeo.data.datasets import check_label
from hf_vitgeo.data.images import decode_row
from hf_vitgeo.data.sampling import mix_seed, training_row
from hf_vitgeo.data.sources import open_split

if TYPE_CHECKING:
    import datasets

#: (epoch, number of the row in the stream, encoded picture, label)
StreamKey = tuple[int, int, Any, int]


@dataclass(frozen=True)
class StreamedSplit:
    """One split of a streamed data set.

    Attributes:
        rows: undecoded rows of `image` and `label`.
        class_names: by label.
        num_rows: how many there are, or None where the data set does not say.
        origin: what messages call it.
        skip_bad_images: leave out rows that cannot be read.
        is_subset: whether `rows` are a drawn part; a shard of it may have fewer rows than others.
    """

    rows: "datasets.IterableDataset"
    class_names: tuple[str, ...]
    num_rows: int | None
    origin: str
    skip_bad_images: bool = False
    is_subset: bool = False

    def read(self, rank: int, world_size: int, seed: int | None = None, buffer: int = 1) -> Iterator[tuple[Any, int]]:
        """Read this process's share.

        Args:
            rank: number of this process.
            world_size: number of processes; whole shards go to each where their number allows it, else every n-th row.
            seed: of the shuffle of shards and rows; None reads in order.
            buffer: rows among which the next one is drawn.

        Yields:
            The encoded picture and its label.

        Raises:
            ValueError: for a label that is missing or out of range; it names the row by its place in what is read.
        """
        from datasets.distributed import split_dataset_by_node

        rows = self.rows if seed is None else self.rows.shuffle(seed=seed, buffer_size=buffer)
        # One process and two must see the same pictures: a part that is taken shard by shard would differ.
        mine = split_dataset_by_node(rows, rank, world_size, strategy="examples" if self.is_subset else "auto")
        skipped: list[str] = []
        share = self.share_name(rank, world_size, seed is not None)
        try:
            for number, row in enumerate(mine):
                label = check_label(row["label"], len(self.class_names), f"row {number} of {share}")
                if self.skip_bad_images:
                    try:
                        decode_row(row["image"], number, share)
                    except ValueError as error:
                        skipped.append(str(error))
                        continue
                yield row["image"], label
        finally:  # also where the reader stops early
            if skipped:
                listed = [*skipped[:10], *["..."] * (len(skipped) > 10)]
                summary = f"left out {len(skipped)} rows that cannot be read:"
                warnings.warn("\n  ".join([summary, *listed]), stacklevel=2)

    def share_name(self, rank: int, world_size: int, shuffled: bool) -> str:
        """What messages call the rows that one process reads.

        Args:
            rank: number of the process.
            world_size: number of processes.
            shuffled: whether they are read in another order than they are stored.
        """
        part = "" if world_size == 1 else f"the part of process {rank} of {world_size} of "
        return f"{part}{'the shuffled ' if shuffled else ''}{self.origin}"


def load_stream(
    name_or_path: str | os.PathLike,
    split: str,
    image_column: str | None = None,
    label_column: str | None = None,
    skip_bad_images: bool = False,
    max_samples: int | None = None,
    seed: int = 0,
    buffer: int = 10_000,
) -> StreamedSplit:
    """Open one split for streaming.

    Args:
        name_or_path: Hub id or local folder, as in `datasets.load_image_dataset`, and so are the next four.
        split: name of the split.
        image_column: name of the column of pictures.
        label_column: name of the column of labels; its feature has to name the classes.
        skip_bad_images: decode every picture when it is read and leave out the broken ones. That is twice the work.
        max_samples: only so many rows, the first of a shuffled stream.
        seed: of that shuffle.
        buffer: of that shuffle.

    Returns:
        The split.

    Raises:
        ValueError: as `datasets.load_image_dataset` does, and for labels without class names: their number cannot be
            known from a part of the data.
    """
    import datasets

    origin = f"{name_or_path}, split {split!r}"
    table = open_split(name_or_path, split, streaming=True)
    image_column, label_column = find_columns(table.features, image_column, label_column, origin)
    feature = table.features[label_column]
    if not isinstance(feature, datasets.ClassLabel):
        raise ValueError(
            f"{origin}: column {label_column!r} is {feature}, which does not name its classes; a streamed data set "
            "needs a ClassLabel column. Leave --streaming out, or name another --label_column_name"
        )
    num_rows = None
    if table.info.splits and split in table.info.splits:
        num_rows = table.info.splits[split].num_examples or None
    # first of all, or every step after it would decode
    table = table.cast_column(image_column, datasets.Image(decode=False))
    table = table.select_columns([image_column, label_column])
    names = {image_column: "image", label_column: "label"}
    # unlike that of a table, the stream's renaming takes no name for itself
    table = table.rename_columns({old: new for old, new in names.items() if old != new})
    if max_samples is not None:
        table = table.shuffle(seed=seed, buffer_size=buffer).take(max_samples)
        num_rows = max_samples if num_rows is None else min(num_rows, max_samples)
    return StreamedSplit(table, tuple(feature.names), num_rows, origin, skip_bad_images, max_samples is not None)


def first_images(split: StreamedSplit, count: int) -> list[tuple[Any, int]]:
    """The first rows of a stream, decoded: a sample for measurements, which need the same pictures again and again.

    Args:
        split: what to read.
        count: how many rows.

    Returns:
        Pictures and labels.
    """
    rows = enumerate(islice(split.read(0, 1), count))
    return [(decode_row(cell, number, split.origin), label) for number, (cell, label) in rows]


class StreamSampler(Sampler[StreamKey]):
    """Shuffled rows of a stream, anew for each epoch, as many on each process; yields keys of `StreamedSamples`.

    Args:
        split: what to read.
        seed: of the shuffle.
        buffer: of the shuffle.
        batch_size: rows a batch on each process.
        num_batches: batches an epoch on each process. A process whose share ends earlier goes on with another shuffle
            of it: with processes that wait for each other, none may stop alone.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(
        self,
        split: StreamedSplit,
        seed: int,
        buffer: int,
        batch_size: int,
        num_batches: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.split, self.seed, self.buffer, self.batch_size = split, seed, buffer, batch_size
        self.num_batches, self.rank, self.world_size = num_batches, rank, world_size
        self.set_epoch(0)

    def set_epoch(self, epoch: int, skip_batches: int = 0) -> None:
        """As in `EpochSampler`; what is skipped is read but not decoded."""
        self.epoch, self.skip_batches = epoch, skip_batches

    def __len__(self) -> int:
        return (self.num_batches - self.skip_batches) * self.batch_size

    def __iter__(self) -> Iterator[StreamKey]:
        return islice(self._endless(), self.skip_batches * self.batch_size, self.num_batches * self.batch_size)

    def _endless(self) -> Iterator[StreamKey]:
        number = 0
        for again in count():
            before = number
            # one seed for all processes, or their shares would overlap
            seed = mix_seed(self.seed, self.epoch, again) % 2**31
            for cell, label in self.split.read(self.rank, self.world_size, seed, self.buffer):
                yield self.epoch, number * self.world_size + self.rank, cell, label
                number += 1
            if number == before:
                raise ValueError(f"process {self.rank} of {self.world_size} found no row in {self.split.origin}")


class StreamedSamples(Dataset):
    """Decode and augment the rows that a `StreamSampler` hands out.

    Args:
        transform: PIL image -> (3, height, width) float32 tensor; draws from torch's global generator.
        seed: seed of the augmentation.
        origin: what messages call the data set.
    """

    def __init__(self, transform: Callable[[Any], torch.Tensor], seed: int, origin: str):
        self.transform, self.seed, self.origin = transform, seed, origin

    def __getitem__(self, key: StreamKey) -> dict[str, Any]:
        epoch, number, cell, label = key
        image = decode_row(cell, number, f"the shuffled {self.origin}")
        return training_row(image, label, epoch, number, self.transform, self.seed)


class StreamedEvaluation(IterableDataset):
    """This process's share of a stream, in order, with a fixed transform. One worker at most reads it.

    Args:
        split: what to read.
        transform: PIL image -> (3, height, width) float32 tensor.
        rank: number of this process.
        world_size: number of processes.
    """

    def __init__(
        self, split: StreamedSplit, transform: Callable[[Any], torch.Tensor], rank: int = 0, world_size: int = 1
    ):
        self.split, self.transform, self.rank, self.world_size = split, transform, rank, world_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        where = self.split.share_name(self.rank, self.world_size, shuffled=False)
        for number, (cell, label) in enumerate(self.split.read(self.rank, self.world_size)):
            yield {"pixel_values": self.transform(decode_row(cell, number, where)), "labels": label}
