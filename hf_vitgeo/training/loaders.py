"""Data loaders of the training loops: what each process sees of a split, in which order and how augmented."""

import signal
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch.utils.data import DataLoader, default_collate

from hf_vitgeo.data.collators import CutMixCollator, MixUpCollator
from hf_vitgeo.data.device_augmentation import DeviceAugmentation, RawPicture
from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.data.sampling import EpochSampler, EvaluationSamples, TrainingSamples
from hf_vitgeo.data.streaming import StreamedEvaluation, StreamedSamples, StreamedSplit, StreamSampler
from hf_vitgeo.data.transforms import eval_transform, train_transform, usual_padding
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.building import PictureFormat
from hf_vitgeo.training.loop_arguments import LoopArguments

Split = ImageSplit | StreamedSplit


class TrainingBatches:
    """Batches of this process, epoch by epoch; any of them can be the first after a resume.

    Args:
        args: parsed arguments.
        split: what to train on.
        accelerator: says which process this is, and where batches go.
        transform: PIL image -> tensor or dict of tensors; draws from torch's global generator.
        collate: rows -> batch.

    Raises:
        ValueError: for fewer pictures than one batch on each process, or a stream of unknown length without
            `max_train_steps`.
    """

    def __init__(
        self, args: LoopArguments, split: Split, accelerator: Accelerator, transform: Any, collate: Any = None
    ):
        self.accelerator = accelerator
        place = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
        batch_size = args.per_device_train_batch_size
        self.num_images = len(split) if isinstance(split, ImageSplit) else split.num_rows
        if isinstance(split, ImageSplit):
            samples: Any = TrainingSamples(split.source, transform, args.seed)
            self.sampler: Any = EpochSampler(len(split), args.seed, batch_size, **place)
        else:
            samples = StreamedSamples(transform, args.seed, split.origin)
            batches = self._batches_of_stream(args)
            self.sampler = StreamSampler(split, args.seed, args.shuffle_buffer_size, batch_size, batches, **place)
        accumulated = args.gradient_accumulation_steps
        #: micro-batches an epoch: whole optimiser steps only
        self.per_epoch = self.sampler.num_batches // accumulated * accumulated
        if self.per_epoch == 0:
            raise ValueError(
                f"{self.num_images} training pictures are fewer than one batch of {batch_size} on each of "
                f"{accelerator.num_processes} processes, {accumulated} times a step"
            )
        self.loader = _loader(args, accelerator, samples, batch_size, self.sampler, collate or default_collate)

    def _batches_of_stream(self, args: LoopArguments) -> int:
        if self.num_images is not None:
            return self.num_images // (args.per_device_train_batch_size * self.accelerator.num_processes)
        if args.max_train_steps is None:
            raise ValueError(
                "the data set does not say how many rows it has; --streaming then needs --max_train_steps"
            )
        return args.max_train_steps * args.gradient_accumulation_steps

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[dict[str, torch.Tensor]]:
        """Batches of one epoch, on the device.

        Args:
            epoch: which shuffle.
            skip: micro-batches to leave out at the beginning.
        """
        self.sampler.set_epoch(epoch, skip)
        for _, batch in zip(range(self.per_epoch - skip), self.loader, strict=False):
            yield self._on_device(batch)

    def _on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return send_to_device(batch, self.accelerator.device, non_blocking=True)


class _DeviceAugmentedBatches(TrainingBatches):
    """Workers only read; augmentation, and mixing after it, are done on whole batches on the device."""

    def __init__(self, args: Any, split: Split, accelerator: Accelerator, pictures: PictureFormat, mixer: Any):
        super().__init__(args, split, accelerator, RawPicture(pictures.size))
        self.augment, self.mixer = device_augmentation(args, pictures), mixer

    def _on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        # What chooses the augmentation stays in main memory: reading it there waits for nothing.
        draws = batch.pop("draws")
        first = {"epoch": batch["epoch"][0], "index": batch["index"][0]}
        if self.mixer is not None:
            batch["labels"] = self.mixer.targets(batch["labels"])
        batch = super()._on_device(batch)
        batch["pixel_values"] = self.augment(batch["pixel_values"], draws)
        return batch if self.mixer is None else self.mixer.mix_batch(batch, self.mixer.generator([first]))


def supervised_batches(
    args: SupervisedArguments, pictures: PictureFormat, split: Split, accelerator: Accelerator
) -> TrainingBatches:
    """Batches of `pixel_values` and `labels`, augmented and mixed as the flags ask for.

    Args:
        args: parsed arguments.
        pictures: their size and normalisation.
        split: what to train on.
        accelerator: says which process this is, and where batches go.

    Returns:
        The batches.

    Raises:
        ValueError: as `TrainingBatches` does.
    """
    mixer = _mixer(args, split)
    if args.augment_on_device:
        return _DeviceAugmentedBatches(args, split, accelerator, pictures, mixer)
    return TrainingBatches(args, split, accelerator, _transform(args, pictures), mixer)


def evaluation_loader(
    args: SupervisedArguments, pictures: PictureFormat, split: Split, accelerator: Accelerator
) -> DataLoader:
    """Batches of this process's share of the evaluation split; the processes share no picture.

    Args:
        args: parsed arguments.
        pictures: their size and normalisation.
        split: what to evaluate on.
        accelerator: says which process this is.

    Returns:
        The loader.
    """
    transform = eval_transform(pictures.size, pictures.mean, pictures.std)
    place = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    if isinstance(split, ImageSplit):
        samples: Any = EvaluationSamples(split.source, transform, **place)
    else:
        samples = StreamedEvaluation(split, transform, **place)
    # More workers would each read the whole stream.
    workers = None if isinstance(split, ImageSplit) else min(args.dataloader_num_workers, 1)
    return _loader(args, accelerator, samples, args.per_device_eval_batch_size, None, default_collate, workers)


def _leave_sigterm_to_the_loop(worker: int) -> None:
    """Launchers signal the whole group: a worker that died of it would end the run before its checkpoint."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _transform(args: SupervisedArguments, pictures: PictureFormat) -> Any:
    return train_transform(
        pictures.size,
        pictures.mean,
        pictures.std,
        crop=str(args.crop),
        horizontal_flip=bool(args.horizontal_flip),
        policy=args.policy,
        cutout=args.cutout_size,
    )


def device_augmentation(args: SupervisedArguments, pictures: PictureFormat) -> DeviceAugmentation:
    """The same protocol as the workers', for batches on the device.

    Args:
        args: parsed arguments.
        pictures: their size and normalisation.

    Returns:
        The augmentation.
    """
    padding = usual_padding(pictures.size) if args.crop == "pad" else 0
    flip = bool(args.horizontal_flip)
    return DeviceAugmentation(pictures.mean, pictures.std, padding, flip, args.policy, args.cutout_size)


def _mixer(args: SupervisedArguments, split: Split) -> CutMixCollator | MixUpCollator | None:
    classes = len(split.class_names)
    # Label smoothing is left to the loss, which knows it for hard and soft labels alike.
    if args.cutmix_probability:
        return CutMixCollator(classes, args.cutmix_alpha, args.cutmix_probability, seed=args.seed)
    if args.mixup_probability:
        return MixUpCollator(classes, args.mixup_alpha, args.mixup_probability, seed=args.seed)
    return None


def _loader(
    args: LoopArguments,
    accelerator: Accelerator,
    samples: Any,
    batch_size: int,
    sampler: Any,
    collate: Any,
    workers: int | None = None,
) -> DataLoader:
    workers = args.dataloader_num_workers if workers is None else workers
    return DataLoader(
        samples,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        worker_init_fn=_leave_sigterm_to_the_loop,
        pin_memory=accelerator.device.type == "cuda",
        # Its own generator: torch's, which dropout and RPT draw from, must not move when an epoch begins.
        generator=torch.Generator(),
    )
