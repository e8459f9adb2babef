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


def _shape(width: int, depth: int, heads: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


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
_PARTS: dict[str, dict[str, Any]] = {
    "autoaugment": {"policy": "autoaugment_cifar10"},
    "cutmix": {"cutmix_probability": 0.5, "cutmix_alpha": 1.0},
    "label_smoothing": {"label_smoothing": 0.1},
}
#: Paper B's ablation, all eight combinations, with the minimum MAD over heads that it prints for CIFAR-100. Of the
#: cells between, only the bound is known.
_CELLS: dict[str, tuple[tuple[str, ...], str]] = {
    "baseline": ((), "minimum MAD .316 on CIFAR-100"),
    "modern": (("autoaugment", "cutmix", "label_smoothing"), "minimum MAD .008 on CIFAR-100"),
    "no_autoaugment": (("cutmix", "label_smoothing"), "minimum MAD at most .024 on CIFAR-100"),
    "no_cutmix": (("autoaugment", "label_smoothing"), "minimum MAD at least .210 on CIFAR-100"),
    "no_label_smoothing": (("autoaugment", "cutmix"), "minimum MAD at most .024 on CIFAR-100"),
    "autoaugment": (("autoaugment",), "minimum MAD at least .210 on CIFAR-100"),
    "cutmix": (("cutmix",), "minimum MAD at most .024 on CIFAR-100"),
    "label_smoothing": (("label_smoothing",), "minimum MAD at least .210 on CIFAR-100"),
}
#: Larger models for paper B's future work: the shapes of ViT-S, B and L.
SIZES: dict[str, dict[str, int]] = {
    "vit_s": _shape(384, 12, 6),
    "vit_b": _shape(768, 12, 12),
    "vit_l": _shape(1024, 24, 16),
}
#: Not in the paper: do they move MAD, although they show no region of another class?
_CONTROLS: dict[str, dict[str, Any]] = {
    "mixup": {"mixup_probability": 0.5, "mixup_alpha": 1.0},
    "cutout": {"cutout_size": 16},
}
_SOURCE_B = (
    "Paper B, {}. Optimisation and strengths are our choice: the paper names none (random crop and flip in all)."
)

_PAPER_A: dict[str, Any] = {
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
}
#: Paper A's conditions with its clean accuracy on ImageNet-100 (4 seeds).
_CONDITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"position_encoding": "none"}, ".5682"),
    "learned": ({"position_encoding": "learned"}, ".6406"),
    "sinusoidal": ({"position_encoding": "sinusoidal"}, ".6568"),
    "rope": ({"position_encoding": "rope"}, ".6901"),
    "learned_rpt": ({"position_encoding": "learned", "permute_tokens_in_training": True}, ".5595"),
}
#: Beside them: the untrained model of its figure 1a, and RPT with the encodings that it does not try it on.
_BESIDE_A: dict[str, tuple[dict[str, Any], str | None]] = {
    "untrained": (
        {"position_encoding": "none", "max_train_steps": 0, "model_label": "untrained"},
        "SSDT .577 to .664 over the layers",
    ),
    "sinusoidal_rpt": ({"position_encoding": "sinusoidal", "permute_tokens_in_training": True}, None),
    "rope_rpt": ({"position_encoding": "rope", "permute_tokens_in_training": True}, None),
}
_SOURCE_A = (
    "Paper A, section 5 and appendix A. Decoupled weight decay, schedule, augmentation, smoothing and precision are "
    "our choice (the paper names none); so its absolute accuracies are not promised."
)


# DINO's ViT-S/16 (PROTOCOLS C.2); its learning rate follows from the pictures of a step.
_DINO: dict[str, Any] = {
    "dataset_name": "ILSVRC/imagenet-1k",
    "preset": "vit_s16_dino",
    "per_device_train_batch_size": 64,
    "mixed_precision": "fp16",
    "dataloader_num_workers": 10,
}
#: What DINO's longest runs do, over its first 30 epochs.
_LONG = {"teacher_temperature": 0.07, "warmup_teacher_epochs": 30, "norm_last_layer": False}
#: Official checkpoints of ViT-S/16, by epochs.
_DINO_NUMBERS = {100: "k-NN .693, linear .740", 300: "k-NN .733, linear .760"}
#: Paper C's four ways of token interaction, with what it prints.
VARIANTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "baseline": ({}, "linear .6950"),
    "register4": ({"num_register_tokens": 4}, "linear below entmax-1.5's; value not known"),
    "specialization": ({"token_specialization": "norm_qkv"}, "linear below entmax-1.5's; value not known"),
    "entmax15": ({"attention_probs_function": "entmax15"}, "linear .7006"),
}
_SMALL_HEAD = {"out_dim": 1024, "head_hidden_dim": 256, "head_bottleneck_dim": 64}
#: Sized down for one machine: width 64, 4 blocks, 64 tokens, four local crops of half the side. Rate, momentum and
#: decay are those after which k-NN rose fastest in four tries on CIFAR-10 of some hundred steps each.
_SMALL: dict[str, Any] = {
    "preset": "tiny",
    **_shape(64, 4, 4),
    **_SMALL_HEAD,
    "num_local_crops": 4,
    "local_crop_scale": [0.1, 0.4],
    "num_train_epochs": 100,
    "num_warmup_epochs": 1.0,
    "freeze_last_layer": 0,
    "teacher_momentum": 0.98,
    "learning_rate": 2e-3,
    "weight_decay": 0.01,
    "final_weight_decay": 0.05,
    "mixed_precision": "bf16",
}
_SMALL_DATA: dict[int, dict[str, Any]] = {
    32: {"dataset_name": "uoft-cs/cifar10", "image_size": 32, "patch_size": 4, "local_crop_size": 16},
    64: {"dataset_name": "zh-plus/tiny-imagenet", "image_size": 64, "patch_size": 8, "local_crop_size": 32},
}
#: A check of an installation, not an experiment.
_SMOKE: dict[str, Any] = {
    "dataset_name": "scenes",
    "preset": "tiny",
    **_SMALL_HEAD,
    "num_local_crops": 4,
    "local_crop_size": 16,
    "max_train_samples": 1024,
    "max_eval_samples": 256,
    "num_train_epochs": 3,
    "num_warmup_epochs": 1.0,
    "learning_rate": 1e-3,
    "teacher_momentum": 0.99,
    "measure_every": 16,
    "measure_images": 64,
    "measure_permutations": 4,
    "knn_train_images": 512,
    "knn_eval_images": 256,
}


def _dino_recipes() -> dict[str, Recipe]:
    script, found = "train_dino.py", {}
    for size, shape in (("vit_s16", {}), ("vit_b16", _shape(768, 12, 12))):
        for epochs in (100, 200, 300):
            for batch, processes in ((512, 8), (1024, 16)):
                flags = {**_DINO, **shape, "num_train_epochs": epochs, **(_LONG if epochs == 300 else {})}
                source = (
                    f"DINO (Caron et al. 2021): {batch} pictures a step on {processes} processes (accelerate launch "
                    f"--num_processes {processes}). ViT-B has ViT-S's settings here."
                )
                number = _DINO_NUMBERS.get(epochs) if size == "vit_s16" else None
                found[f"dino_{size}_{epochs}ep_b{batch}"] = Recipe(script, flags, source, number)
    for name, (extra, number) in VARIANTS.items():
        source = (
            "Paper C: DINOv1, ViT-S/16, 200 epochs; the rest is DINO's, as the paper says nothing of it. Its baseline "
            "is below DINO's own at 100 epochs, so compare the variants with each other, not with its numbers."
        )
        found[f"paper_c_{name}"] = Recipe(script, {**_DINO, "num_train_epochs": 200, **extra}, source, number)
        for side, data in _SMALL_DATA.items():
            source = f"Paper C's {name} at a scale of this project: {side} pixels, width 64, 4 blocks, 64 tokens."
            found[f"dino_small_{side}_{name}"] = Recipe(script, {**_SMALL, **data, **extra}, source)
    found["dino_smoke"] = Recipe(script, _SMOKE, "A check of an installation: 48 steps of 64 rendered scenes.")
    return found


def _recipes() -> dict[str, Recipe]:
    script, found = "train_supervised.py", {}
    for name, (parts, number) in _CELLS.items():
        flags = {**_PAPER_B, **{flag: value for part in parts for flag, value in _PARTS[part].items()}}
        said = " and ".join(parts).replace("_", " ") or "baseline"
        found[f"paper_b_{name}"] = Recipe(script, flags, _SOURCE_B.format(said), number)
    for name, extra in _CONTROLS.items():
        source = f"A control of this project for paper B: {name} instead of CutMix."
        found[f"paper_b_{name}"] = Recipe(script, {**_PAPER_B, **extra}, source)
    for size, shape in SIZES.items():
        for name in ("baseline", "modern"):
            flags = {**found[f"paper_b_{name}"].overrides, **shape}
            source = f"Paper B's future work: its {name} protocol on the shape of {size.replace('_', '-')}."
            found[f"paper_b_{size}_{name}"] = Recipe(script, flags, source)
    for name, (condition, accuracy) in _CONDITIONS.items():
        found[f"paper_a_{name}"] = Recipe(
            script, {**_PAPER_A, **condition}, _SOURCE_A, f"accuracy {accuracy}, 4 seeds"
        )
    for name, (condition, printed) in _BESIDE_A.items():
        found[f"paper_a_{name}"] = Recipe(script, {**_PAPER_A, **condition}, _SOURCE_A, printed)
    return found | _dino_recipes()


RECIPES = _recipes()


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
