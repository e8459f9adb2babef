"""The DINO benchmark: a step with each attention function, and the step of the original implementation."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A small model on a CPU; DINO's own on an accelerator: width, depth, heads, sides in pixels, patch, outputs, batch.
_SMALL = (96, 6, 3, (32, 16), 4, 1024, 32)
_LARGE = (384, 12, 6, (224, 96), 16, 65536, 64)
_LOCAL = 4
#: Far more steps than are timed: no schedule ends.
_STEPS = 1000


def steps(device: Any, checkout: Path | None) -> Iterator[Any]:
    """Forward of all views, loss, backward, clipping, AdamW, teacher and centre; pictures are at hand.

    Args:
        device: torch device.
        checkout: a folder with the original implementation's code, or None.

    Yields:
        One case.
    """
    import torch

    from hf_vitgeo.commands.benchmark_cases import Case

    width, depth, heads, (side, local), patch, outputs, batch = _SMALL if device.type == "cpu" else _LARGE
    crops = {
        "global_crops": torch.randn(batch, 2, 3, side, side, device=device),
        "local_crops": torch.randn(batch, _LOCAL, 3, local, local, device=device),
    }
    calls = {}
    if checkout is not None:
        calls["the original implementation"] = _original(
            device, checkout, crops, (width, depth, heads, side, patch, outputs)
        )
    for name in ("softmax", "entmax15"):
        calls[f"ours, {name}"] = _ours(device, name, crops, (width, depth, heads, side, patch, outputs))
    title = f"DINO step, width {width}, {depth} blocks, views 2 of {side} and {_LOCAL} of {local} px, batch {batch}"
    yield Case(title, calls, "ours, softmax", batch)


def _ours(device: Any, function: str, crops: Any, shape: tuple[int, ...]) -> Any:
    import numpy as np
    import torch
    from accelerate import Accelerator

    from hf_vitgeo.training.dino import build_student
    from hf_vitgeo.training.dino_arguments import DINOArguments
    from hf_vitgeo.training.dino_method import make_teacher
    from hf_vitgeo.training.dino_stepping import DINOStepper
    from hf_vitgeo.training.schedules import parameter_groups

    width, depth, heads, side, patch, outputs = shape
    args = DINOArguments(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=side,
        patch_size=patch,
        out_dim=outputs,
        attention_probs_function=function,  # type: ignore[arg-type]
        freeze_last_layer=0,
    )
    accelerator = Accelerator(cpu=device.type == "cpu")
    student = build_student(args).to(device)
    teacher = make_teacher(student, drop_path_rate=0.0).to(device)
    optimizer = torch.optim.AdamW(parameter_groups(student, args.weight_decay, decay_tables=True), lr=1e-4)
    student, optimizer = accelerator.prepare(student, optimizer)
    stepper = DINOStepper(args, accelerator, student, optimizer, np.full(_STEPS, 1e-4), teacher, _STEPS)
    return lambda: stepper.step(0, [crops])


def _original(device: Any, checkout: Path, crops: Any, shape: tuple[int, ...]) -> Any:
    """The body of its training loop, without mixed precision, on the same views."""
    import torch

    sys.path.insert(0, str(checkout))
    try:
        import main_dino
        import utils
        import vision_transformer
    finally:
        sys.path.remove(str(checkout))
    width, depth, heads, side, patch, outputs = shape
    if not torch.distributed.is_initialized():  # its loss sums over processes
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)

    def network(drop_path: float) -> Any:
        backbone = vision_transformer.VisionTransformer(
            img_size=[side],
            patch_size=patch,
            embed_dim=width,
            depth=depth,
            num_heads=heads,
            qkv_bias=True,
            drop_path_rate=drop_path,
        )
        head = vision_transformer.DINOHead(width, outputs)
        return utils.MultiCropWrapper(backbone, head).to(device)

    student, teacher = network(0.1), network(0.0)
    teacher.load_state_dict(student.state_dict())
    criterion = main_dino.DINOLoss(outputs, 2 + _LOCAL, 0.04, 0.04, 0, 10).to(device)
    optimizer = torch.optim.AdamW(utils.get_params_groups(student), lr=1e-4)
    views = [*crops["global_crops"].unbind(1), *crops["local_crops"].unbind(1)]

    def run() -> None:
        with torch.no_grad():
            taught = teacher(views[:2])
        loss = criterion(student(views), taught, 0)
        optimizer.zero_grad()
        loss.backward()
        utils.clip_gradients(student, 3.0)
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.data.mul_(0.996).add_(0.004 * other.detach().data)

    return run
