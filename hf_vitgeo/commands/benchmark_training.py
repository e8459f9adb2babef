"""The training benchmark: our data path and model, and a plain Accelerate loop as one would write it.

Each in float32, Accelerate's default, and in bf16 by Accelerate's flag.
"""

from collections.abc import Iterator
from typing import Any

BATCH = 64
STEPS = 6


def epochs(device: Any) -> Iterator[Any]:
    """A few steps of the compact ViT on 32x32 pictures that are in memory, under both protocols of paper B.

    Args:
        device: torch device.

    Yields:
        A case for each protocol.
    """
    import numpy as np

    from hf_vitgeo.commands.benchmark_cases import Case

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (BATCH * STEPS, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, BATCH * STEPS)
    for protocol in ("baseline", "modern"):
        calls = {}
        for precision in ("float32", "bf16"):
            for name, way in (("plain loop", _plain), ("ours", _ours)):
                calls[f"{name}, {precision}"] = way(device, images, labels, protocol == "modern", precision)
        title = f"supervised training, compact ViT, {protocol}, {STEPS} steps of {BATCH}"
        yield Case(title, calls, "plain loop, float32", BATCH * STEPS)


def _accelerator(device: Any, precision: str) -> Any:
    """An accelerator of this precision beside those of others, which Accelerate's shared state would refuse."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # Each accelerator keeps for itself whether it casts; which type it casts to is only read where it does, and the
    # bf16 ones are made last.
    AcceleratorState._reset_state()
    return Accelerator(cpu=device.type == "cpu", mixed_precision="bf16" if precision == "bf16" else "no")


def _plain(device: Any, images: Any, labels: Any, modern: bool, precision: str) -> Any:
    """Torchvision's transforms picture by picture, a DataLoader, transformers' ViT, Accelerate."""
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset, default_collate
    from torchvision.transforms import v2
    from transformers import ViTConfig, ViTForImageClassification

    parts = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
    parts += [v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10)] if modern else []
    parts += [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.5,) * 3, (0.5,) * 3)]
    transform = v2.Compose(parts)

    class Pictures(Dataset):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            return transform(Image.fromarray(images[index])), int(labels[index])

    cutmix = v2.RandomApply([v2.CutMix(num_classes=10)], p=0.5)
    collate = (lambda rows: cutmix(*default_collate(rows))) if modern else default_collate
    config = ViTConfig(
        hidden_size=192,
        num_hidden_layers=8,
        num_attention_heads=8,
        intermediate_size=384,
        image_size=32,
        patch_size=4,
        num_labels=10,  # type: ignore[call-arg]  # transformers' own keyword, which its dataclass does not declare
    )
    accelerator = _accelerator(device, precision)
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Pictures(), batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    smoothing = 0.1 if modern else 0.0

    def run() -> None:
        model.train()
        for pixels, targets in loader:
            logits = model(pixel_values=pixels).logits
            loss = torch.nn.functional.cross_entropy(logits, targets, label_smoothing=smoothing)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return run


def _ours(device: Any, images: Any, labels: Any, modern: bool, precision: str) -> Any:
    """The parts of `training.supervised` that a step goes through."""
    import numpy as np
    import torch

    from hf_vitgeo.data.loading import ImageSplit
    from hf_vitgeo.data.sampling import ArrayImages
    from hf_vitgeo.training.arguments import SupervisedArguments
    from hf_vitgeo.training.building import build_model, choose_kernel, picture_format
    from hf_vitgeo.training.loaders import supervised_batches
    from hf_vitgeo.training.schedules import parameter_groups
    from hf_vitgeo.training.stepping import groups
    from hf_vitgeo.training.supervised import SupervisedStepper

    protocol: dict[str, Any] = {}
    if modern:
        protocol = {"policy": "autoaugment_cifar10", "cutmix_probability": 0.5, "label_smoothing": 0.1}
    protocol["mixed_precision"] = "bf16" if precision == "bf16" else "no"
    args = SupervisedArguments(dataset_name="memory", per_device_train_batch_size=BATCH, **protocol)
    accelerator = _accelerator(device, precision)
    classes = tuple(str(number) for number in range(10))
    model = build_model(args, classes)
    choose_kernel(args, model, device.type)
    optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=1e-3)
    split = ImageSplit(ArrayImages(images, labels), classes)
    batches = supervised_batches(args, picture_format(args), split, accelerator)
    model, optimizer = accelerator.prepare(model, optimizer)
    stepper = SupervisedStepper(args, accelerator, model, optimizer, np.full(STEPS, 1e-3))

    def run() -> None:
        model.train()
        for number, group in enumerate(groups(batches.epoch(0), 1)):
            stepper.step(number, group)

    return run
