"""Supervised training (papers A and B): one Accelerate loop that writes a run folder."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import ViTImageProcessor

from hf_vitgeo.data.sampling import EpochSampler, EvaluationSamples, TrainingSamples
from hf_vitgeo.data.transforms import NORMALIZATION, eval_transform, train_transform
from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification
from hf_vitgeo.models.configuration_vitgeo import as_pair
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.schedules import parameter_groups, warmup_cosine


@dataclass(frozen=True)
class ImageSplit:
    """A split that was decoded once: `images` (N, s, s, 3) uint8, `labels` (N,) int64 and the names of the classes."""

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]


def build_config(args: SupervisedArguments, class_names: tuple[str, ...]) -> ViTGeoConfig:
    """The model's configuration from preset, flags and classes.

    Args:
        args: parsed arguments.
        class_names: in the order of the labels.

    Returns:
        The configuration.

    Raises:
        ValueError: for impossible values (see `ViTGeoConfig`).
    """
    return ViTGeoConfig.from_preset(
        args.preset,
        **args.model_overrides(),
        id2label=dict(enumerate(class_names)),
        label2id={name: number for number, name in enumerate(class_names)},
        problem_type="single_label_classification",
    )


def train(args: SupervisedArguments, config: ViTGeoConfig, train_data: ImageSplit, eval_data: ImageSplit) -> RunDir:
    """Train a classifier and write its run folder: arguments, log, checkpoint with image processor, accuracy.

    Args:
        args: parsed arguments.
        config: the model's configuration.
        train_data: pictures to train on, at the model's size.
        eval_data: pictures to evaluate on.

    Returns:
        The run folder.

    Raises:
        ValueError: when the splits do not have the same classes, or the training set is smaller than a batch.
        FloatingPointError: when the loss is not finite.
    """
    if train_data.class_names != eval_data.class_names:
        raise ValueError("the training and evaluation splits have different classes; name splits of one data set")
    accelerator = Accelerator(mixed_precision=args.mixed_precision)
    set_seed(args.seed)
    model = ViTGeoForImageClassification(config)
    optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.learning_rate)
    train_loader, eval_loader, sampler = _loaders(args, train_data, eval_data)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, train_loader, eval_loader)
    if len(train_loader) == 0:
        raise ValueError(
            f"{len(train_data.labels)} training pictures are fewer than one batch of "
            f"{args.per_device_train_batch_size} on each of {accelerator.num_processes} processes"
        )
    run = RunDir(args.output_dir)
    facts = {
        **args.as_dict(),
        "model": args.label,
        "position_encoding": config.position_encoding,
        "permute_tokens_in_training": config.permute_tokens_in_training,
        "model_config": config.to_dict(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_train_images": len(train_data.labels),
        "num_classes": len(train_data.class_names),
        "num_processes": accelerator.num_processes,
        "device": str(accelerator.device),
    }
    if accelerator.is_main_process:
        run.write_args(facts)
    started = time.perf_counter()
    steps, accuracy = _run_epochs(args, accelerator, model, optimizer, train_loader, eval_loader, sampler, run)
    seconds = time.perf_counter() - started
    seen = steps * args.per_device_train_batch_size * accelerator.num_processes
    if accelerator.is_main_process:
        _save(accelerator.unwrap_model(model), run, args)
        outcome = {"steps": steps, "images_seen": seen, "epochs": seen / len(train_data.labels), "seconds": seconds}
        run.write_args({**facts, **outcome, "images_per_second": seen / seconds, "eval_accuracy": accuracy})
    accelerator.end_training()
    return run


def _loaders(
    args: SupervisedArguments, train_data: ImageSplit, eval_data: ImageSplit
) -> tuple[DataLoader, DataLoader, EpochSampler]:
    mean, std = NORMALIZATION[str(args.normalization)]
    size = train_data.images.shape[1]
    padding = None if args.random_crop else 0
    augment = train_transform(size, mean, std, padding, horizontal_flip=bool(args.horizontal_flip))
    sampler = EpochSampler(len(train_data.labels), args.seed)
    train_loader = DataLoader(
        TrainingSamples(train_data.images, train_data.labels, augment, args.seed),
        batch_size=args.per_device_train_batch_size,
        sampler=sampler,
        drop_last=True,
        num_workers=args.dataloader_num_workers,
    )
    eval_loader = DataLoader(
        EvaluationSamples(eval_data.images, eval_data.labels, eval_transform(size, mean, std)),
        batch_size=args.per_device_eval_batch_size,
        num_workers=args.dataloader_num_workers,
    )
    return train_loader, eval_loader, sampler


def _run_epochs(
    args: SupervisedArguments,
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: Any,
    train_loader: Any,
    eval_loader: Any,
    sampler: EpochSampler,
    run: RunDir,
) -> tuple[int, float]:
    """The loop; returns the number of optimiser steps and the last accuracy."""
    total = args.max_train_steps or args.num_train_epochs * len(train_loader)
    epochs = math.ceil(total / len(train_loader))
    warmup = round(args.num_warmup_epochs * len(train_loader))
    if warmup >= total:
        raise ValueError(
            f"--num_warmup_epochs {args.num_warmup_epochs} are {warmup} steps but the run has {total} "
            "(--max_train_steps or --num_train_epochs); warm-up must end before training does"
        )
    rates = warmup_cosine(args.learning_rate, 0.0, total, warmup)
    step, accuracy = 0, float("nan")
    bar = tqdm(total=total, desc=f"train {args.label}", unit="step", disable=not accelerator.is_main_process)
    for epoch in range(epochs):
        model.train()
        sampler.set_epoch(epoch)
        losses = []
        for batch in train_loader:
            if step == total:
                break
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
            losses.append(_step(args, accelerator, model, optimizer, batch))
            step += 1
            bar.update()
        loss = torch.stack(losses).mean().item()
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss of epoch {epoch} is {loss}; a smaller --learning_rate (now {args.learning_rate}) or "
                "--mixed_precision no usually helps"
            )
        if (epoch + 1) % args.eval_every_epochs == 0 or epoch == epochs - 1:
            accuracy = evaluate(accelerator, model, eval_loader)
            bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{accuracy:.3f}")
        if accelerator.is_main_process:
            run.log(epoch=epoch, step=step, loss=loss, learning_rate=rates[step - 1], accuracy=accuracy)
    bar.close()
    return step, accuracy


def _step(args: SupervisedArguments, accelerator: Accelerator, model: Any, optimizer: Any, batch: Any) -> torch.Tensor:
    """One optimiser step; returns the loss, still on its device so that nothing waits for it."""
    with accelerator.autocast():
        logits = model(pixel_values=batch["pixel_values"]).logits
        loss = nn.functional.cross_entropy(logits.float(), batch["labels"], label_smoothing=args.label_smoothing)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: nn.Module, loader: Any) -> float:
    """Top-1 accuracy over a prepared loader, each picture counted once on any number of processes.

    Args:
        accelerator: that prepared model and loader.
        model: a classifier.
        loader: batches of `pixel_values` and `labels`.

    Returns:
        Share of right pictures in [0, 1].
    """
    model.eval()
    right, count = 0, 0
    for batch in loader:
        with accelerator.autocast():
            predicted = model(pixel_values=batch["pixel_values"]).logits.argmax(dim=1)
        hits = accelerator.gather_for_metrics(predicted == batch["labels"])
        right, count = right + int(hits.sum()), count + len(hits)
    return right / count


def _save(model: ViTGeoForImageClassification, run: RunDir, args: SupervisedArguments) -> None:
    """Write the model with its code and the processor that prepares pictures as the evaluation did."""
    height, width = as_pair(model.config.image_size)
    mean, std = NORMALIZATION[str(args.normalization)]
    processor = ViTImageProcessor(
        size={"height": height, "width": width}, image_mean=list(mean), image_std=list(std), resample=2
    )
    model.save_pretrained(run.checkpoint)
    processor.save_pretrained(run.checkpoint)
