"""Command-line arguments of training. No torch: `--help` and every refusal come at once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from transformers import HfArgumentParser

#: Flags that set the configuration field of the same name; None leaves the preset's value.
MODEL_FIELDS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "image_size",
    "patch_size",
    "position_encoding",
    "position_init_std",
    "initializer_range",
    "permute_tokens_in_training",
    "attention_probs_function",
    "num_register_tokens",
    "pooling",
    "drop_path_rate",
)


def flag(default: Any, text: str) -> Any:
    """A field of a dataclass of arguments, with what `--help` says of it."""
    return field(default=default, metadata={"help": text})


@dataclass
class SupervisedArguments:
    """Arguments of `scripts/train_supervised.py`. The optimisation defaults are paper B's choices in PROTOCOLS B.3."""

    output_dir: str = flag("runs/supervised", "Run folder: arguments, log, results and checkpoint.")
    model_label: str | None = flag(None, "Name of the model in results; position encoding (+rpt) where left out.")

    dataset_name: str = flag("scenes", "Hub id, local folder, or 'scenes' for the rendered data set.")
    train_split: str = flag("train", "Split to train on.")
    eval_split: str = flag("test", "Split to evaluate on.")
    image_column_name: str | None = flag(None, "Column of the pictures; found from the features where left out.")
    label_column_name: str | None = flag(None, "Column of the classes; found from the features where left out.")
    max_train_samples: int | None = flag(None, "Train on a seeded random subset of this size.")
    max_eval_samples: int | None = flag(None, "Evaluate on a seeded random subset of this size.")
    skip_bad_images: bool = flag(False, "Leave out pictures that cannot be read, and count them.")
    random_crop: bool | None = flag(None, "Shift training pictures at random; left out: yes, but for scenes.")
    horizontal_flip: bool | None = flag(None, "Mirror training pictures at random; left out: yes, but for scenes.")
    normalization: Literal["half", "imagenet", "scenes"] | None = flag(
        None, "Mean and standard deviation of the pictures; left out: 'scenes' for those, 'half' for others."
    )

    preset: Literal["vit_s16_paper_a", "vit_compact_paper_b", "vit_s16_dino", "tiny"] = flag(
        "vit_compact_paper_b", "Model to start from; the flags below change it."
    )
    hidden_size: int | None = flag(None, "Width of the residual stream.")
    num_hidden_layers: int | None = flag(None, "Number of blocks.")
    num_attention_heads: int | None = flag(None, "Heads of each attention.")
    intermediate_size: int | None = flag(None, "Width inside the MLP.")
    image_size: int | None = flag(None, "Side of the pictures in pixels.")
    patch_size: int | None = flag(None, "Side of a patch in pixels.")
    position_encoding: Literal["none", "learned", "sinusoidal", "rope"] | None = flag(None, "How position is encoded.")
    position_init_std: float | None = flag(None, "Standard deviation of the initial learned table (paper A: 1.0).")
    initializer_range: float | None = flag(None, "Standard deviation of the initial weights.")
    permute_tokens_in_training: bool | None = flag(None, "Paper A's RPT: shuffle patch tokens at each training step.")
    attention_probs_function: Literal["softmax", "entmax15"] | None = flag(None, "What makes attention weights.")
    num_register_tokens: int | None = flag(None, "Register tokens.")
    pooling: Literal["cls", "mean"] | None = flag(None, "What is classified: [CLS] or the mean of the patches.")
    drop_path_rate: float | None = flag(None, "Largest rate of stochastic depth.")

    per_device_train_batch_size: int = flag(128, "Pictures a step on each process.")
    per_device_eval_batch_size: int = flag(256, "Pictures a step in evaluation.")
    num_train_epochs: int = flag(200, "Passes over the training set.")
    max_train_steps: int | None = flag(None, "Optimiser steps; wins over the epochs.")
    learning_rate: float = flag(1e-3, "Largest learning rate.")
    num_warmup_epochs: float = flag(10.0, "Epochs of linear warm-up; the rest is a cosine to 0.")
    weight_decay: float = flag(0.05, "Decoupled weight decay of matrices; vectors, tables and tokens have none.")
    label_smoothing: float = flag(0.0, "Share of the target spread over all classes.")
    max_grad_norm: float = flag(1.0, "Clip the gradient's norm to this.")
    mixed_precision: Literal["no", "bf16", "fp16"] = flag("no", "Precision of the forward pass.")
    dataloader_num_workers: int = flag(0, "Processes that prepare pictures.")
    eval_every_epochs: int = flag(1, "Epochs between evaluations; the last epoch is always evaluated.")
    seed: int = flag(0, "Seed of weights, order, augmentation and permutations.")

    def __post_init__(self) -> None:
        positive = (
            "per_device_train_batch_size per_device_eval_batch_size num_train_epochs learning_rate max_grad_norm "
            "eval_every_epochs max_train_samples max_eval_samples max_train_steps"
        )
        for name in positive.split():
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"--{name} is {value}; allowed is a number above 0")
        for name in ("num_warmup_epochs", "weight_decay", "dataloader_num_workers", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"--{name} is {getattr(self, name)}; allowed is a number of at least 0")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"--label_smoothing is {self.label_smoothing}; allowed is a number from 0 up to 1")
        if self.max_train_steps is None and self.num_warmup_epochs >= self.num_train_epochs:
            raise ValueError(
                f"--num_warmup_epochs is {self.num_warmup_epochs} of --num_train_epochs {self.num_train_epochs}; "
                "warm-up must end before training does"
            )
        self._fill_in_by_data_set()

    def _fill_in_by_data_set(self) -> None:
        """What was left out and depends on the data: in a scene, the place of the object is part of the class."""
        scenes = self.dataset_name == "scenes"
        for name in ("random_crop", "horizontal_flip"):
            if scenes and getattr(self, name):
                raise ValueError(f"--{name} is True, but a scene's class names a place: moving the picture changes it")
            if getattr(self, name) is None:
                setattr(self, name, not scenes)
        self.normalization = self.normalization or ("scenes" if scenes else "half")

    @property
    def label(self) -> str:
        """Name of the model in results and figures."""
        encoding = self.position_encoding or "learned"
        return self.model_label or encoding + ("+rpt" if self.permute_tokens_in_training else "")

    def model_overrides(self) -> dict[str, Any]:
        """The configuration fields that were set by a flag."""
        return {name: getattr(self, name) for name in MODEL_FIELDS if getattr(self, name) is not None}

    def as_dict(self) -> dict[str, Any]:
        """Every argument by name."""
        return asdict(self)


def parse(dataclass_type: Any, argv: Sequence[str] | None, description: str, prog: str | None = None) -> Any:
    """Parse a command line into a dataclass.

    Args:
        dataclass_type: whose fields are the flags.
        argv: the words, or None for those of the process.
        description: one sentence for `--help`.
        prog: name of the command.

    Returns:
        An instance. A wrong flag or value ends the process with status 2 and one line that names it.
    """
    parser = HfArgumentParser(dataclass_type, description=description, prog=prog, allow_abbrev=False)
    try:
        return parser.parse_args_into_dataclasses(args=None if argv is None else list(argv))[0]
    except ValueError as error:
        unknown = "Some specified arguments are not used by the HfArgumentParser: "
        parser.error(str(error).replace(unknown, "unknown arguments: "))
