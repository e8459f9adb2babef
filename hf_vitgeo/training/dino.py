"""DINO pre-training (paper C): the student, its teacher and their loss in the loop that every training shares."""

import warnings
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, set_seed

from hf_vitgeo.data.multicrop import MultiCrop
from hf_vitgeo.models import ViTGeoModel
from hf_vitgeo.models.configuration_vitgeo import as_pair
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.building import PictureFormat, build_config, choose_kernel, save_model
from hf_vitgeo.training.dino_arguments import DINOArguments
from hf_vitgeo.training.dino_method import DINOHead, DINONetwork, collapse, make_teacher
from hf_vitgeo.training.dino_stepping import DINOStepper
from hf_vitgeo.training.loaders import Split, TrainingBatches
from hf_vitgeo.training.loop import Loop, OnMeasure, make_accelerator
from hf_vitgeo.training.schedules import learning_rates, parameter_groups


def crops_of(args: DINOArguments, pictures: PictureFormat) -> MultiCrop:
    """The views that the flags ask for; known before any data is read.

    Args:
        args: parsed arguments.
        pictures: size of the global crops, and normalisation.

    Returns:
        The transform.

    Raises:
        ValueError: for crops that the model cannot take, or a loss without a pair of views.
    """
    patch, (height, width) = as_pair(build_config(args).patch_size), pictures.size
    if height != width:
        raise ValueError(f"image_size is {pictures.size}; DINO's crops are squares")
    if args.num_local_crops:
        if args.local_crop_size > height:
            raise ValueError(
                f"--local_crop_size is {args.local_crop_size}; allowed is at most the side of a global crop "
                f"(--image_size), which is {height}"
            )
        if args.local_crop_size % patch[0] or args.local_crop_size % patch[1]:
            raise ValueError(
                f"--local_crop_size is {args.local_crop_size}; allowed is a multiple of --patch_size, which is "
                f"{patch[0]}"
            )
    return MultiCrop(
        height,
        min(args.local_crop_size, height),
        args.num_local_crops,
        args.global_crop_scale,
        args.local_crop_scale,
        pictures.mean,
        pictures.std,
        bool(args.horizontal_flip),
    )


def build_student(args: DINOArguments) -> DINONetwork:
    """A new backbone with its head, seeded.

    Args:
        args: parsed arguments.

    Returns:
        The student.

    Raises:
        ValueError: for impossible values (see `ViTGeoConfig`).
    """
    set_seed(args.seed)
    backbone = ViTGeoModel(build_config(args))
    head = DINOHead(
        backbone.config.hidden_size, args.out_dim, args.head_hidden_dim, args.head_bottleneck_dim, args.norm_last_layer
    )
    return DINONetwork(backbone, head)


def train(
    args: DINOArguments,
    student: DINONetwork,
    pictures: PictureFormat,
    train_split: Split,
    on_measure: OnMeasure | None = None,
) -> RunDir:
    """Pre-train and write a run folder: arguments, log, checkpoints, and the teacher's backbone with image processor.

    Stochastic depth and RPT are seeded by (seed, step), order and crops by (seed, epoch, index), so a resumed run
    gives the same weights to the bit on the same kind and number of devices. Labels are not looked at.

    Args:
        args: parsed arguments.
        student: not yet trained (see `build_student`).
        pictures: the size and normalisation that it takes.
        train_split: what to train on.
        on_measure: called at step 0 and every `args.measure_every` steps with the teacher's backbone.

    Returns:
        The run folder.

    Raises:
        ValueError: when the folder is in use, the training set is smaller than a step, or a checkpoint does not fit.
        FloatingPointError: when loss or gradient are not finite.
        OSError: when a checkpoint cannot be written.
        SystemExit: with status 143 after SIGTERM, when the checkpoint is saved.
    """
    return _DINOLoop(args, make_accelerator(args), student, pictures, train_split, on_measure).train()


class _DINOLoop(Loop):
    """What the steps of one pre-training share."""

    args: DINOArguments
    stepper: DINOStepper

    def __init__(
        self,
        args: DINOArguments,
        accelerator: Accelerator,
        student: DINONetwork,
        pictures: PictureFormat,
        train_split: Split,
        on_measure: OnMeasure | None,
    ):
        if accelerator.distributed_type == DistributedType.FSDP:
            raise ValueError("DINO's teacher follows every weight of the student: not under FSDP; use DDP")
        batches = TrainingBatches(args, train_split, accelerator, crops_of(args, pictures))
        super().__init__(args, accelerator, batches, on_measure)
        choose_kernel(args, student.backbone, accelerator.device.type)
        self.pictures = pictures
        base = args.learning_rate
        if base is None:
            base = 5e-4 * self.images_per_step / 256
        rates = learning_rates(args, base, args.min_learning_rate, self.total, self.steps_per_epoch)
        teacher = make_teacher(student, drop_path_rate=0.0).to(accelerator.device)
        choose_kernel(args, teacher.backbone, accelerator.device.type)
        head = sum(parameter.numel() for parameter in student.head.parameters())
        self.set_up(student.backbone, rates, {"head_parameters": head, "largest_learning_rate": base})
        optimizer = torch.optim.AdamW(parameter_groups(student, args.weight_decay, decay_tables=True), lr=base)
        prepared, optimizer = accelerator.prepare(student, optimizer)
        stepper = DINOStepper(args, accelerator, prepared, optimizer, rates, teacher, self.steps_per_epoch)
        self.use(stepper, stepper)
        #: the log has every epoch that is found collapsed, the screen only the first
        self.warned = False

    def before_checkpoint(self) -> None:
        """As for the loss: one process saves for all."""
        self.stepper.bring_together()

    def at_end_of_epoch(self, loss: float) -> dict[str, Any]:
        """What the teacher says of the epoch's pictures, and a warning where nothing is learned any more."""
        progress = self.progress
        said = self.stepper.said_in_epoch(loss, progress.counted)
        # in the first epoch of several, the teacher is still near its random start
        judged = progress.epoch > 0 or progress.step == self.total
        found = collapse(said["teacher_entropy"], said["kl"], self.args.out_dim) if judged else None
        if found and not self.warned and self.accelerator.is_main_process:
            warnings.warn(f"epoch {progress.epoch}: {found}", stacklevel=2)
        self.warned = self.warned or found is not None
        self.accelerator.log(said, step=progress.step)
        self.shown["entropy"] = f"{said['teacher_entropy']:.2f}"
        last = progress.step - 1
        return {
            **said,
            "collapse": found,
            "teacher_temperature": self.stepper.temperatures[progress.epoch],
            "teacher_momentum": self.stepper.momenta[last],
            "weight_decay": self.stepper.decays[last],
        }

    def save_result(self) -> None:
        """The teacher's backbone."""
        save_model(self.accelerator, self.stepper.measured, self.pictures, self.run.path / "checkpoint")

    def outcome(self) -> dict[str, Any]:
        """What the teacher said in the last epoch."""
        last = (self.run.events() or [{}])[-1]
        return {name: last.get(name) for name in ("loss", "teacher_entropy", "teacher_entropy_of_mean", "kl")}
