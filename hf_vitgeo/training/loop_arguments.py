"""Command-line arguments that both training loops take. No torch: `--help` and every refusal come at once."""

import importlib.util
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hf_vitgeo.data.catalog import entry

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
    "token_specialization",
    "pooling",
    "drop_path_rate",
)

#: Packages of the trackers; an unknown or missing one would be left out by Accelerate without a word.
TRACKERS = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}

#: Arguments that may differ when a run is resumed: they change neither weights nor results.
FREE_ON_RESUME = {
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint", "model_label", "recipe", "config"),
    *("dataloader_num_workers", "per_device_eval_batch_size", "checkpointing_steps", "save_total_limit", "report_to"),
}


def flag(default: Any, text: str) -> Any:
    """A field of a dataclass of arguments, with what `--help` says of it."""
    return field(default=default, metadata={"help": text})


#: What every preset has where a flag is left out; `args.json` records what the model got.
PRESET_CONDITION: dict[str, Any] = {"position_encoding": "learned", "permute_tokens_in_training": False}


def condition_name(position_encoding: str, permuted: bool | None) -> str:
    """What results call a model of paper A: its encoding, and +rpt where tokens were shuffled in training."""
    return position_encoding + ("+rpt" if permuted else "")


@dataclass
class LoopArguments:
    """Data, model, optimisation, checkpoints and measurements: what every training has. Defaults: PROTOCOLS B.3."""

    output_dir: str = flag("runs/run", "Run folder: arguments, log, results and checkpoints.")
    overwrite_output_dir: bool = flag(False, "Remove the run that is in the folder, and begin anew.")
    model_label: str | None = flag(None, "Name of the model in results; position encoding (+rpt) where left out.")
    recipe: str | None = flag(None, "Name of a recipe (hf_vitgeo/recipes.py): flags beside it change it.")
    config: str | None = flag(None, "JSON or YAML file of flags; it goes over the recipe, and flags go over it.")

    dataset_name: str = flag("scenes", "Hub id, local folder, or 'scenes' for the rendered data set.")
    train_split: str = flag("train", "Split to train on.")
    eval_split: str | None = flag(None, "Split to evaluate on; left out: that of the catalogue, else 'test'.")
    image_column_name: str | None = flag(None, "Column of the pictures; found from the features where left out.")
    label_column_name: str | None = flag(None, "Column of the classes; found from the features where left out.")
    max_train_samples: int | None = flag(None, "Train on a seeded random subset of this size.")
    max_eval_samples: int | None = flag(None, "Evaluate on a seeded random subset of this size.")
    skip_bad_images: bool = flag(False, "Leave out pictures that cannot be read, and count them.")
    streaming: bool = flag(False, "Read the data as it comes instead of loading it first.")
    shuffle_buffer_size: int = flag(10_000, "Rows among which a streamed row is drawn.")
    horizontal_flip: bool | None = flag(None, "Mirror training pictures at random; left out: yes, but for scenes.")
    normalization: Literal["half", "imagenet", "scenes"] | None = flag(
        None, "Mean and standard deviation of pictures; left out: the catalogue's, the checkpoint's, else 'half'."
    )

    preset: Literal["vit_s16_paper_a", "vit_compact_paper_b", "vit_s16_dino", "tiny"] | None = flag(
        None, "Model to start from, vit_compact_paper_b where left out; the flags below change it."
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
    token_specialization: Literal["none", "norm", "norm_qkv"] | None = flag(
        None, "Parameters of their own for [CLS]: in the norms, or also in q, k, v of the first third of the blocks."
    )
    pooling: Literal["cls", "mean"] | None = flag(None, "What is classified: [CLS] or the mean of the patches.")
    drop_path_rate: float | None = flag(None, "Largest rate of stochastic depth.")

    per_device_train_batch_size: int = flag(128, "Pictures a micro-batch on each process.")
    per_device_eval_batch_size: int = flag(256, "Pictures a batch in evaluation.")
    gradient_accumulation_steps: int = flag(1, "Micro-batches an optimiser step.")
    num_train_epochs: int = flag(200, "Passes over the training set.")
    max_train_steps: int | None = flag(None, "Optimiser steps; wins over the epochs. 0 saves the untrained model.")
    num_warmup_epochs: float = flag(10.0, "Epochs of linear warm-up; the rest is a cosine to 0.")
    num_warmup_steps: int | None = flag(None, "Optimiser steps of warm-up; wins over the epochs of it.")
    weight_decay: float = flag(0.05, "Decoupled weight decay of matrices; vectors, tables and tokens have none.")
    max_grad_norm: float = flag(1.0, "Clip the gradient's norm to this.")
    on_nan: Literal["stop", "skip"] = flag("stop", "What a loss or gradient that is not finite does to the run.")
    mixed_precision: Literal["no", "bf16", "fp16"] = flag("no", "Precision of the forward pass.")
    torch_compile: bool = flag(False, "Compile the model (inductor; needs a compiler).")
    attn_implementation: str | None = flag(
        None, "Attention kernel of transformers, such as sdpa; left out: its choice, but eager for bf16 on a CPU."
    )
    dataloader_num_workers: int = flag(0, "Processes that prepare pictures.")
    seed: int = flag(0, "Seed of weights, order, augmentation and permutations.")

    checkpointing_steps: str = flag("epoch", "Optimiser steps between checkpoints, 'epoch', or 'no'.")
    save_total_limit: int = flag(2, "Checkpoints that are kept; with one, a damaged one ends the run.")
    resume_from_checkpoint: str | None = flag(
        None, "Folder of a checkpoint, or 'auto': the newest whole one of the run folder, or a new run without one."
    )
    report_to: list[str] = field(
        default_factory=list, metadata={"help": f"Trackers: {', '.join(TRACKERS)}. Each has to be installed."}
    )
    measure_every: int | None = flag(None, "Optimiser steps between measurements of structure and heads.")
    measure_images: int = flag(256, "Evaluation pictures for them, a fixed seeded sample.")
    measure_permutations: int = flag(16, "Permutations of RPI for them.")

    def __post_init__(self) -> None:
        self.check_numbers(
            "above 0",
            "per_device_train_batch_size per_device_eval_batch_size num_train_epochs max_grad_norm "
            "max_train_samples max_eval_samples gradient_accumulation_steps save_total_limit measure_every "
            "measure_images measure_permutations shuffle_buffer_size hidden_size num_hidden_layers "
            "num_attention_heads intermediate_size image_size patch_size",
        )
        self.check_numbers(
            "of at least 0",
            "max_train_steps num_warmup_epochs num_warmup_steps weight_decay dataloader_num_workers seed "
            "position_init_std initializer_range num_register_tokens",
        )
        self.check_shares("drop_path_rate")
        self._fill_in_by_data_set()
        self._check_warmup()
        self._check_checkpoints()
        for tracker in self.report_to:
            if tracker not in TRACKERS:
                raise ValueError(f"--report_to is {tracker!r}; allowed are {', '.join(TRACKERS)}")
            if importlib.util.find_spec(TRACKERS[tracker]) is None:
                raise ValueError(f"--report_to {tracker}: it is not installed (pip install {TRACKERS[tracker]})")

    def check_numbers(self, allowed: str, names: str) -> None:
        """Refuse numbers that are not finite, or not "above 0", or not "of at least 0".

        Args:
            allowed: one of the two.
            names: of the flags, separated by spaces; those that are None are left out.

        Raises:
            ValueError: naming the flag and its value.
        """
        for name in names.split():
            value = getattr(self, name)
            if value is None or (math.isfinite(value) and (value > 0 or (value == 0 and allowed != "above 0"))):
                continue
            raise ValueError(f"--{name} is {value}; allowed is a finite number {allowed}")

    def check_shares(self, names: str) -> None:
        """Refuse what is no number from 0 up to, but without, 1.

        Args:
            names: as in `check_numbers`.

        Raises:
            ValueError: naming the flag and its value.
        """
        for name in names.split():
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"--{name} is {value}; allowed is a number from 0 up to 1")

    def _check_warmup(self) -> None:
        if self.max_train_steps is None and self.num_warmup_steps is None:
            if self.num_warmup_epochs >= self.num_train_epochs:
                raise ValueError(
                    f"--num_warmup_epochs is {self.num_warmup_epochs} of --num_train_epochs {self.num_train_epochs}; "
                    "warm-up must end before training does"
                )
        if self.max_train_steps and (self.num_warmup_steps or 0) >= self.max_train_steps:
            raise ValueError(
                f"--num_warmup_steps is {self.num_warmup_steps} of --max_train_steps {self.max_train_steps}; warm-up "
                "must end before training does"
            )

    def _check_checkpoints(self) -> None:
        if self.checkpointing_steps not in ("epoch", "no"):
            if not self.checkpointing_steps.isdecimal() or int(self.checkpointing_steps) < 1:
                raise ValueError(
                    f"--checkpointing_steps is {self.checkpointing_steps!r}; allowed are a whole number of at least "
                    "1, 'epoch' and 'no'"
                )
        if self.resume_from_checkpoint and self.overwrite_output_dir:
            raise ValueError("--overwrite_output_dir removes what --resume_from_checkpoint needs; give one of them")
        if self.resume_from_checkpoint not in (None, "auto") and not Path(str(self.resume_from_checkpoint)).is_dir():
            raise ValueError(f"--resume_from_checkpoint {self.resume_from_checkpoint} is no folder; or say 'auto'")

    def _fill_in_by_data_set(self) -> None:
        """What was left out and depends on the data: in a scene, the place of the object is part of the class."""
        scenes, known = self.dataset_name == "scenes", entry(self.dataset_name)
        if scenes and self.horizontal_flip:
            raise ValueError(moved("horizontal_flip", True))
        if self.horizontal_flip is None:
            self.horizontal_flip = not scenes
        if self.normalization is None and not self.takes_checkpoint:
            self.normalization = "scenes" if scenes else known.normalization if known else "half"  # type: ignore
        self.eval_split = self.eval_split or (known.eval_split if known else "test")
        if known:
            self.image_column_name = self.image_column_name or known.image_column
            self.label_column_name = self.label_column_name or known.label_column
            small = self.preset in (None, "vit_compact_paper_b", "tiny") and known.image_size <= 64
            if small and self.image_size is None and self.patch_size is None and not self.takes_checkpoint:
                # paper B: an 8x8 grid on every data set
                self.image_size, self.patch_size = known.image_size, known.image_size // 8

    @property
    def takes_checkpoint(self) -> bool:
        """Whether the model, with its architecture and normalisation, comes from a checkpoint."""
        return False

    @property
    def label(self) -> str:
        """Name of the model in results and figures."""
        encoding = self.position_encoding or PRESET_CONDITION["position_encoding"]
        return self.model_label or condition_name(encoding, self.permute_tokens_in_training)

    def model_overrides(self) -> dict[str, Any]:
        """The configuration fields that were set by a flag."""
        return {name: getattr(self, name) for name in MODEL_FIELDS if getattr(self, name) is not None}

    def what_resume_keeps(self) -> dict[str, Any]:
        """The arguments that a resumed run must share with the one it goes on with."""
        return {name: value for name, value in asdict(self).items() if name not in FREE_ON_RESUME}

    def as_dict(self) -> dict[str, Any]:
        """Every argument by name."""
        return asdict(self)


def moved(name: str, value: Any) -> str:
    """Why a flag that moves pictures is refused for scenes."""
    return f"--{name} is {value}, but a scene's class names a place: moving the picture changes it"
