"""Recipes by name: the flags of a paper's training, with its source and number. No torch import."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """What a paper trains, as flags of a script.

    Attributes:
        script: the script that takes it.
        overrides: flags that differ from the script's defaults.
        source: which paper, and which of its values are our choice because it says nothing.
        paper_number: what the paper reports, or None.
        cost_seen: what a run took here, with machine and scale, or None where none was run.
    """

    script: str
    overrides: dict[str, Any] = field(hash=False)
    source: str
    paper_number: str | None = None
    cost_seen: str | None = None

    @property
    def command(self) -> str:
        """The command line that the overrides stand for."""
        return " ".join(["python", f"scripts/{self.script}", *words_of(self.overrides)])


def words_of(overrides: dict[str, Any]) -> list[str]:
    """Flags as words of a command line; None is left out, lists become several words."""
    words: list[str] = []
    for name, value in overrides.items():
        if value is not None:
            words += [f"--{name}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return words


# Paper B names neither optimiser nor schedule, batch, epochs and strengths: PROTOCOLS B.3 has our choices.
_PAPER_B: dict[str, Any] = {
    "dataset_name": "uoft-cs/cifar100",
    "preset": "vit_compact_paper_b",
    "num_train_epochs": 200,
    "num_warmup_epochs": 10.0,
    "per_device_train_batch_size": 128,
    "learning_rate": 1e-3,
    "weight_decay": 0.05,
}
_MODERN: dict[str, Any] = {
    "policy": "autoaugment_cifar10",
    "cutmix_probability": 0.5,
    "cutmix_alpha": 1.0,
    "label_smoothing": 0.1,
}

RECIPES: dict[str, Recipe] = {
    "paper_b_baseline": Recipe(
        "train_supervised.py",
        _PAPER_B,
        "Paper B, baseline protocol: random crop and flip. Optimisation is our choice.",
        "minimum MAD .316 on CIFAR-100",
    ),
    "paper_b_modern": Recipe(
        "train_supervised.py",
        {**_PAPER_B, **_MODERN},
        "Paper B, modern protocol: AutoAugment, CutMix, label smoothing. Their strengths and optimisation are ours.",
        "minimum MAD .008 on CIFAR-100",
    ),
    "paper_a_imagenet100": Recipe(
        "train_supervised.py",
        {
            "dataset_name": "clane9/imagenet-100",
            "preset": "vit_s16_paper_a",
            "num_train_epochs": 60,
            "num_warmup_epochs": 5.0,
            "per_device_train_batch_size": 128,
            "learning_rate": 1e-3,
            "weight_decay": 0.05,
            "crop": "resized",
            "label_smoothing": 0.1,
            "mixed_precision": "bf16",
        },
        "Paper A, section 5 and appendix A. Decoupled weight decay, schedule, augmentation, smoothing and precision "
        "are our choice (the paper names none); so its absolute accuracies are not promised.",
        "accuracy .6406 with a learned encoding, 4 seeds",
    ),
}


def recipe(name: str) -> Recipe:
    """A recipe by name.

    Args:
        name: one of `RECIPES`.

    Returns:
        The recipe.

    Raises:
        ValueError: for an unknown name; it lists those that there are.
    """
    if name not in RECIPES:
        raise ValueError(f"--recipe is {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]
