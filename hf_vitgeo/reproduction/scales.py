"""The cells of papers A and B, and the scales at which one can afford them. No torch."""

from dataclasses import dataclass, field
from typing import Any

from hf_vitgeo.recipes import recipe

#: Cells by paper, in the order of figures; each is the recipe paper_<letter>_<cell>.
CELLS: dict[str, tuple[str, ...]] = {
    "A": ("untrained", "none", "learned", "sinusoidal", "rope", "learned_rpt", "sinusoidal_rpt", "rope_rpt"),
    "B": (
        *("baseline", "autoaugment", "label_smoothing", "no_cutmix"),
        *("cutmix", "no_autoaugment", "no_label_smoothing", "modern"),
        *("mixup", "cutout"),
    ),
}


@dataclass(frozen=True)
class Scale:
    """A size of the experiments.

    Attributes:
        train: flags of training that go over a cell's recipe.
        analyze: flags of the analysis.
        by_paper: further flags of training by paper.
        source: what it is for.
    """

    train: dict[str, Any] = field(hash=False)
    analyze: dict[str, Any] = field(hash=False)
    by_paper: dict[str, dict[str, Any]] = field(hash=False)
    source: str


# Width 96 with 6 layers of 64 tokens: 0.46 million parameters. The weights of paper A start where torch starts them
# (as its code does), which is a s.d. of .059 at this width; at .02 the patches would be invisible beside an N(0, 1)
# table.
_SMALL = {
    "preset": "vit_compact_paper_b",
    "hidden_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 192,
}
_PAPER_A_SMALL = {"crop": "pad", "position_init_std": 1.0, "initializer_range": 0.059, "mixed_precision": "no"}

SCALES: dict[str, Scale] = {
    "smoke": Scale(
        train={
            "dataset_name": "scenes",
            "preset": "tiny",
            "max_train_samples": 512,
            "max_eval_samples": 256,
            "num_train_epochs": 2,
            "num_warmup_epochs": 0.5,
            "per_device_train_batch_size": 32,
            "measure_every": 16,
            "measure_images": 32,
            "measure_permutations": 4,
        },
        analyze={"n_images": 64, "alpha_images": 32, "n_permutations": 4, "max_eval_samples": 256},
        by_paper={
            "A": {**_PAPER_A_SMALL, "crop": "none", "initializer_range": 0.1},
            # in a scene, the place of the object is part of the class
            "B": {"crop": "none"},
        },
        source="Every step of the way in minutes, on rendered scenes. Says nothing about the claims.",
    ),
    "cpu": Scale(
        train={
            "dataset_name": "uoft-cs/cifar10",
            **_SMALL,
            "max_train_samples": 20_000,
            "max_eval_samples": 2_000,
            "num_train_epochs": 5,
            "num_warmup_epochs": 0.5,
            "per_device_train_batch_size": 64,
            "measure_every": 312,
            "measure_images": 128,
            "measure_permutations": 8,
        },
        analyze={"alpha_images": 128},
        by_paper={"A": _PAPER_A_SMALL, "B": {}},
        source="Hours on two cores: CIFAR-10, 20,000 pictures, 5 epochs.",
    ),
    "gpu": Scale(
        train={
            "dataset_name": "uoft-cs/cifar10",
            "preset": "vit_compact_paper_b",
            "num_train_epochs": 50,
            "num_warmup_epochs": 5.0,
            "mixed_precision": "bf16",
            "measure_every": 3_900,
        },
        analyze={},
        by_paper={
            "A": {"crop": "pad", "position_init_std": 1.0, "initializer_range": 0.042},
            "B": {"dataset_name": "uoft-cs/cifar100"},
        },
        source="Hours on one GPU: the compact ViT on all of CIFAR for 50 epochs.",
    ),
    "full": Scale(
        train={},
        analyze={},
        by_paper={"A": {"measure_every": 9_900}, "B": {"measure_every": 3_900}},
        source="The papers' scale.",
    ),
}

#: Where the policy is colour jitter instead of AutoAugment: paper B does so on Tiny-ImageNet, and a scene's class
#: names a place, which AutoAugment would move.
_JITTERED = ("tiny-imagenet", "tiny_imagenet", "scenes")


def training_flags(paper: str, cell: str, scale: str, dataset_name: str | None = None) -> dict[str, Any]:
    """The flags of one cell's training: its recipe, and the scale over it.

    Args:
        paper: "A" or "B".
        cell: one of `CELLS[paper]`.
        scale: one of `SCALES`.
        dataset_name: Hub id or folder instead of the scale's.

    Returns:
        Flags of `scripts/train_supervised.py` by name.

    Raises:
        ValueError: for a cell or scale that there is not.
    """
    if cell not in CELLS[paper]:
        raise ValueError(f"--cells has {cell!r}; paper {paper} has {', '.join(CELLS[paper])}")
    if scale not in SCALES:
        raise ValueError(f"--scale is {scale!r}; there are {', '.join(SCALES)}")
    chosen, condition = SCALES[scale], recipe(f"paper_{paper.lower()}_{cell}").overrides
    flags = {**condition, **chosen.train, **chosen.by_paper[paper]}
    if dataset_name is not None:
        flags["dataset_name"] = dataset_name
    if "policy" in flags and any(name in flags["dataset_name"].lower() for name in _JITTERED):
        flags["policy"] = "color_jitter"
    if paper == "B":
        flags["model_label"] = cell
    if cell == "untrained":
        # nothing happens over its time
        flags["measure_every"] = None
    return flags


def analysis_flags(paper: str, scale: str) -> dict[str, Any]:
    """The flags of every cell's analysis: paper A sweeps alpha and shifts the pictures, paper B asks about heads.

    Args:
        paper: "A" or "B".
        scale: one of `SCALES`.

    Returns:
        Flags of `scripts/analyze.py` by name.
    """
    own: dict[str, Any] = {"alphas": [], "shifts": []} if paper == "B" else {}
    return {**own, **SCALES[scale].analyze}
