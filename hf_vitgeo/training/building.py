"""The classifier that is trained, the pictures it takes, and how both are saved."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification, ViTImageProcessor
from transformers.utils import logging

from hf_vitgeo.data.transforms import NORMALIZATION
from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification
from hf_vitgeo.models.attention import check_attention_kernel
from hf_vitgeo.models.configuration_vitgeo import as_pair
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.checkpoints import write_failed
from hf_vitgeo.training.loop_arguments import LoopArguments

#: Paper B's model, which is small enough for any machine.
DEFAULT_PRESET = "vit_compact_paper_b"


@dataclass(frozen=True)
class PictureFormat:
    """What enters the model.

    Attributes:
        size: height and width in pixels.
        mean: of the channels in [0, 1].
        std: likewise.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def build_config(args: LoopArguments, class_names: tuple[str, ...] | None = None) -> ViTGeoConfig:
    """The model's configuration from preset, flags and classes.

    Args:
        args: parsed arguments.
        class_names: in the order of the labels; None for a backbone.

    Returns:
        The configuration.

    Raises:
        ValueError: for impossible values (see `ViTGeoConfig`).
    """
    labels = _labels(class_names) if class_names else {}
    return ViTGeoConfig.from_preset(args.preset or DEFAULT_PRESET, **args.model_overrides(), **labels)


def picture_format(args: LoopArguments) -> PictureFormat:
    """Size and normalisation, known before any data is read; impossible architectures are refused here.

    Args:
        args: parsed arguments.

    Returns:
        Those of the flags; those of the checkpoint for `--model_name_or_path`.

    Raises:
        ValueError: for impossible values.
        OSError: for a checkpoint that is not there.
    """
    if not isinstance(args, SupervisedArguments) or args.model_name_or_path is None:
        mean, std = NORMALIZATION[str(args.normalization)]
        return PictureFormat(as_pair(build_config(args).image_size), mean, std)
    size = as_pair(AutoConfig.from_pretrained(args.model_name_or_path).image_size)
    if args.normalization is not None:
        return PictureFormat(size, *NORMALIZATION[args.normalization])
    processor = AutoImageProcessor.from_pretrained(args.model_name_or_path)
    return PictureFormat(size, tuple(processor.image_mean), tuple(processor.image_std))


def build_model(args: SupervisedArguments, class_names: tuple[str, ...]) -> Any:
    """The classifier: new and seeded, or a checkpoint to go on from.

    Args:
        args: parsed arguments.
        class_names: in the order of the labels.

    Returns:
        A transformers model with one output a class.

    Raises:
        ValueError: for impossible values, or a checkpoint with other classes.
    """
    set_seed(args.seed)
    if args.model_name_or_path is None:
        return ViTGeoForImageClassification(build_config(args, class_names))
    saved = AutoConfig.from_pretrained(args.model_name_or_path)
    if saved.num_labels != len(class_names) and not args.ignore_mismatched_sizes:
        raise ValueError(
            f"--model_name_or_path {args.model_name_or_path} has {saved.num_labels} classes, the data "
            f"{len(class_names)}; --ignore_mismatched_sizes gives it a new head"
        )
    named = [saved.id2label[number] for number in range(saved.num_labels)]
    unnamed = all(name == f"LABEL_{number}" for number, name in enumerate(named))
    if saved.num_labels == len(class_names) and not unnamed and named != list(class_names):
        raise ValueError(
            f"--model_name_or_path {args.model_name_or_path} has as many classes as the data, but others or in "
            f"another order: {named[:3]} ... and {list(class_names[:3])} ..."
        )
    return AutoModelForImageClassification.from_pretrained(
        args.model_name_or_path, ignore_mismatched_sizes=args.ignore_mismatched_sizes, **_labels(class_names)
    )


def choose_kernel(args: LoopArguments, model: Any, device_type: str) -> None:
    """Set the attention kernel that the flag names, or the one that is fast here.

    In bf16 on a CPU, the backward pass of torch's own kernel (sdpa) takes two thirds of a training step of the compact
    ViT; without it the step takes less than half of the time.

    Args:
        args: parsed arguments.
        model: a transformers model; changed in place.
        device_type: where it will be trained, such as "cpu".

    Raises:
        ValueError: for a kernel that transformers or the model's attention function does not have.
    """
    slow = args.mixed_precision == "bf16" and device_type == "cpu"
    kernel = args.attn_implementation or ("eager" if slow else None)
    if kernel is not None:
        model.set_attn_implementation(kernel)
        if isinstance(model.config, ViTGeoConfig):
            check_attention_kernel(model.config)


def _labels(class_names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(class_names)),
        "label2id": {name: number for number, name in enumerate(class_names)},
        "problem_type": "single_label_classification",
    }


def save_model(accelerator: Accelerator, model: Any, pictures: PictureFormat, folder: Path) -> None:
    """Write a model with its code and the processor that prepares pictures as the evaluation did; whole or not at all.

    Args:
        accelerator: of the run; all processes call this.
        model: as Accelerate prepared it, or bare.
        pictures: what enters the model.
        folder: where `from_pretrained` will read. What was there is replaced.

    Raises:
        OSError: when it could not be written, as on a full disk.
    """
    # gathers what is sharded; a compiled model puts its own name before each of the model's
    state = {name.replace("_orig_mod.", ""): value for name, value in accelerator.get_state_dict(model).items()}
    if accelerator.is_main_process:
        aside = folder.with_name(f".partial_{folder.name}")
        bare = accelerator.unwrap_model(model, keep_torch_compile=False)
        try:
            _write(bare, state, pictures, aside)
        except Exception as error:  # safetensors has an error of its own for a write that failed
            shutil.rmtree(aside, ignore_errors=True)
            raise OSError(write_failed(f"the model ({folder.name})", folder.parent, error)) from error
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
    accelerator.wait_for_everyone()


def _write(model: Any, state: dict[str, Any], pictures: PictureFormat, folder: Path) -> None:
    """Weights, code and image processor into a folder of their own."""
    shutil.rmtree(folder, ignore_errors=True)
    # its bar for one small file would tear the bar of the training
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    model.save_pretrained(folder, state_dict=state)
    if shown:
        logging.enable_progress_bar()
    processor = ViTImageProcessor(
        size={"height": pictures.size[0], "width": pictures.size[1]},
        image_mean=list(pictures.mean),
        image_std=list(pictures.std),
        resample=2,
    )
    processor.save_pretrained(folder)
