"""Command-line arguments of supervised training. No torch."""

from dataclasses import dataclass
from typing import Literal

from hf_vitgeo.training.loop_arguments import LoopArguments, flag, moved


@dataclass
class SupervisedArguments(LoopArguments):
    """Arguments of `scripts/train_supervised.py`. The optimisation defaults are paper B's choices in PROTOCOLS B.3."""

    output_dir: str = flag("runs/supervised", "Run folder: arguments, log, results and checkpoints.")
    eval_every_epochs: int = flag(1, "Epochs between evaluations; the last epoch is always evaluated.")
    learning_rate: float = flag(1e-3, "Largest learning rate.")
    ema_decay: float | None = flag(None, "Average the weights by this factor a step; evaluated and saved instead.")

    model_name_or_path: str | None = flag(None, "Checkpoint folder or Hub id to go on from, with its architecture.")
    ignore_mismatched_sizes: bool = flag(False, "Give that checkpoint a new head where the classes differ.")

    crop: Literal["pad", "resized", "none"] | None = flag(
        None, "How training pictures are cut: a window of the padded one (paper B), or a resized window."
    )
    policy: Literal["none", "autoaugment_cifar10", "autoaugment_imagenet", "color_jitter"] = flag(
        "none", "What else is done to each training picture (paper B's modern protocol)."
    )
    augment_on_device: bool = flag(False, "Augment whole batches there, each picture by itself; workers only read.")
    cutout_size: int = flag(0, "Side in pixels of a square that is blanked out; a control for CutMix.")
    cutmix_probability: float = flag(0.0, "Share of batches that CutMix mixes (modern protocol: .5).")
    cutmix_alpha: float = flag(1.0, "CutMix draws lambda from Beta(alpha, alpha).")
    mixup_probability: float = flag(0.0, "Share of batches that MixUp mixes; a control for CutMix.")
    mixup_alpha: float = flag(1.0, "MixUp draws lambda from Beta(alpha, alpha).")
    label_smoothing: float = flag(0.0, "Share of the target spread over all classes (modern protocol: .1).")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_numbers("above 0", "learning_rate eval_every_epochs cutmix_alpha mixup_alpha")
        self.check_numbers("of at least 0", "cutout_size")
        self.check_shares("label_smoothing ema_decay")
        for name in ("cutmix_probability", "mixup_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; allowed is a number from 0 to 1")
        if self.cutmix_probability and self.mixup_probability:
            raise ValueError("--cutmix_probability and --mixup_probability are both set; a batch is mixed in one way")
        self._fill_in_crop()
        if self.augment_on_device and (self.crop == "resized" or self.policy == "color_jitter"):
            name = "crop" if self.crop == "resized" else "policy"
            raise ValueError(f"--augment_on_device has no --{name} {getattr(self, name)}; leave one of them out")
        given = [*self.model_overrides(), *(["preset"] if self.preset else [])]
        if self.model_name_or_path and given:
            names = ", ".join(f"--{name}" for name in given)
            raise ValueError(f"--model_name_or_path brings its own architecture; leave out {names}")

    def _fill_in_crop(self) -> None:
        scenes = self.dataset_name == "scenes"
        if scenes and self.crop not in (None, "none"):
            raise ValueError(moved("crop", self.crop))
        if scenes and self.policy.startswith("autoaugment"):
            raise ValueError(moved("policy", self.policy))
        if self.crop is None:
            self.crop = "none" if scenes else "pad"

    @property
    def takes_checkpoint(self) -> bool:
        """Whether the model, with its architecture and normalisation, comes from a checkpoint."""
        return self.model_name_or_path is not None
