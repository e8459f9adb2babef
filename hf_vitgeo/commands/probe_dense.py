"""What `scripts/probe.py` does for --task segmentation and depth: windows, patch maps, linear heads, pictures."""

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_vitgeo.commands.model_inputs import load_model, picture_size
from hf_vitgeo.commands.probe_arguments import ProbeArguments
from hf_vitgeo.data.dense import IGNORE, check_mask
from hf_vitgeo.data.dense_sets import DenseSplit, open_dense
from hf_vitgeo.runs import RunDir

if TYPE_CHECKING:
    import torch

    from hf_vitgeo.probing.dense_training import Schedule, Windows
    from hf_vitgeo.probing.patch_maps import PatchMaps

#: What is recorded of each head.
SEGMENTATION_METRICS: tuple[str, ...] = ("miou", "pixel_accuracy")
DEPTH_METRICS: tuple[str, ...] = ("rmse", "rmse_pooled", "abs_rel", "log_rmse", "delta1")
#: Windows overlap by a third, as in DINOv2's sliding windows (512 pixels, stride 341).
_STRIDE = 2 / 3
#: Test pictures whose predictions are kept for a look, and their longer side in pixels.
_KEPT, _KEPT_SIDE = 6, 256


def probe(args: ProbeArguments, dataset_name: str) -> list[dict[str, Any]]:
    """Probe the patches of a frozen backbone, and of one with random weights.

    Args:
        args: parsed arguments.
        dataset_name: Hub id, local folder, or `scenes`.

    Returns:
        Records without `model`, `seed` and `step`; predictions for a look are in `arrays/`.

    Raises:
        ValueError: for data that does not fit, a layer that there is not, or patch maps too large for the disk.
    """
    from accelerate.utils import set_seed

    from hf_vitgeo.data.loading import name_in_results

    model, processor = load_model(args.model, args.device)
    window = (args.window, args.window) if args.window else picture_size(model.config, processor)
    models = {None: model}
    if args.controls:
        set_seed(args.seed)
        models["random_weights"] = type(model)(copy.deepcopy(model.config)).to(model.device)  # type: ignore[index]
    rows = []
    for task in args.task:
        splits = [_open(args, dataset_name, task, which) for which in (0, 1)]
        classes = _classes(args, splits) if task == "segmentation" else 0
        cut = [_cut(args, split, window) for split in splits]
        for intervention, each in models.items():
            found = _score(args, task, each, processor, splits, cut, classes, intervention is None)
            rows += [{**row, "intervention": intervention, "n_images": len(splits[1])} for row in found]
    facts = {"dataset": name_in_results(dataset_name), "split": args.split}
    return [{**facts, **row} for row in rows]


def _open(args: ProbeArguments, dataset_name: str, task: str, which: int) -> DenseSplit:
    given = args.mask_column_name if task == "segmentation" else args.depth_column_name
    return open_dense(
        dataset_name,
        (args.train_split, str(args.split))[which],
        task,
        args.image_column_name,
        given,
        (args.max_train_samples, args.max_eval_samples)[which],
        args.seed,
        args.zero_is_ignored,
        args.depth_encoding,  # type: ignore[arg-type]  # checked with the arguments
    )


def _classes(args: ProbeArguments, splits: list[DenseSplit]) -> int:
    """K: as given and checked, or one more than the largest class of either split."""
    masks = [(split.origin, number, split.target(number)) for split in splits for number in range(len(split))]
    largest = max((int(mask[mask != IGNORE].max(initial=-1)) for *_, mask in masks), default=-1)
    classes = args.num_classes or largest + 1
    if classes < 1:
        raise ValueError(f"the masks of {splits[0].origin} hold no class")
    for origin, number, mask in masks:
        check_mask(mask, classes, f"row {number} of {origin}")
    return classes


def _cut(args: ProbeArguments, split: DenseSplit, window: tuple[int, int]) -> "Windows":
    """Where the windows of each picture are, once its shorter side has the length asked for."""
    from hf_vitgeo.probing.dense_training import Windows
    from hf_vitgeo.probing.patch_maps import window_places

    stride = tuple(max(1, round(side * _STRIDE)) for side in window)
    places, sizes, targets = [], [], []
    for number in range(len(split)):
        target = split.target(number)
        short = args.short_side or min(window)
        scale = max(short / min(target.shape), *(side / full for side, full in zip(window, target.shape, strict=True)))
        size = tuple(max(side, round(full * scale)) for side, full in zip(window, target.shape, strict=True))
        places.append(window_places(size, window, stride))  # type: ignore[arg-type]
        sizes.append(size)
        targets.append(target)
    return Windows(places, sizes, targets, window)


def _batches(split: DenseSplit, windows: "Windows", processor: Any, batch_size: int) -> "Iterator[torch.Tensor]":
    """Normalised windows (B, 3, h, w) in the order of their pictures."""
    import torch

    from hf_vitgeo.data.images import resize

    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (processor.image_mean, processor.image_std))
    height, width = windows.window
    waiting: list[Any] = []
    for number in range(len(split)):
        image = np.asarray(resize(split.image(number), *windows.sizes[number]))
        for top, left in windows.places[number]:
            waiting.append(image[top : top + height, left : left + width])
            if len(waiting) == batch_size:
                yield _normalised(waiting, mean, std)
                waiting.clear()
    if waiting:
        yield _normalised(waiting, mean, std)


def _normalised(windows: list[Any], mean: Any, std: Any) -> "torch.Tensor":
    import torch

    # (B, h, w, 3) -> (B, 3, h, w)
    return (torch.from_numpy(np.stack(windows)).permute(0, 3, 1, 2).float() / 255 - mean) / std


@dataclass
class _Kept:
    """Some predictions, made small, for a picture of them."""

    arrays: dict[str, np.ndarray]
    split: DenseSplit
    name: str

    def __call__(self, number: int, predicted: np.ndarray) -> None:
        if number >= _KEPT:
            return
        from hf_vitgeo.data.dense import resize_mask
        from hf_vitgeo.data.images import resize

        truth = self.split.target(number)
        scale = min(1.0, _KEPT_SIDE / max(truth.shape))
        height, width = (max(1, round(side * scale)) for side in truth.shape)
        self.arrays[f"image_{number}"] = np.asarray(resize(self.split.image(number), height, width))
        self.arrays[f"truth_{number}"] = resize_mask(truth, height, width)
        self.arrays[f"{self.name}_{number}"] = resize_mask(predicted, height, width)


def _look_away(number: int, predicted: np.ndarray) -> None:
    """For predictions that nobody will look at."""


def _score(
    args: ProbeArguments,
    task: str,
    model: Any,
    processor: Any,
    splits: list[DenseSplit],
    cut: "list[Windows]",
    classes: int,
    keep: bool,
) -> list[dict[str, Any]]:
    """Records of one task: every layer asked for, without and with [CLS]."""
    from tqdm.auto import tqdm

    from hf_vitgeo.analysis.adapters import adapter_for
    from hf_vitgeo.probing.dense_training import depth_probe, segmentation_probe
    from hf_vitgeo.probing.patch_maps import patch_maps

    run: Any
    if task == "segmentation":
        run, metrics = partial(segmentation_probe, num_classes=classes), SEGMENTATION_METRICS
    else:
        enlarge = 4 if args.dense_preset == "dinov2" else 1
        run = partial(depth_probe, min_depth=args.min_depth, max_depth=args.max_depth, enlarge=enlarge)
        metrics = DEPTH_METRICS
    layers = _layers(args, len(adapter_for(model).blocks))
    schedule, rows = _schedule(args, task), []
    folder = RunDir(args.output_dir or args.model)
    folder.path.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    # patch maps are large: they go when the task is done
    with tempfile.TemporaryDirectory(dir=folder.path, prefix=".partial_patch_maps_") as space:
        maps: list[PatchMaps] = []
        for name, split, windows in zip(("train", "test"), splits, cut, strict=True):
            count = sum(map(len, windows.places))
            with tqdm(total=count, desc=f"patch maps, {name}", unit="window") as bar:
                batches = _batches(split, windows, processor, args.batch_size)
                maps.append(patch_maps(model, batches, count, Path(space) / name, layers, progress=bar.update))
        with tqdm(total=len(layers) * 2 * schedule.steps, desc=f"{task} head", unit="step") as bar:
            for layer in layers:
                for with_cls in (False, True):
                    last = keep and layer == layers[-1]
                    name = "with_cls" if with_cls else "patches"
                    found = run(
                        maps[0],
                        cut[0],
                        maps[1],
                        cut[1],
                        layer=layer,
                        with_cls=with_cls,
                        schedule=schedule,
                        progress=bar.update,
                        on_prediction=_Kept(arrays, splits[1], name) if last else _look_away,
                    )
                    kind = f"{args.dense_preset}, patches{' and [CLS]' if with_cls else ''}"
                    rows += [{"metric": name, "layer": layer, "probe": kind, "value": found[name]} for name in metrics]
                    if last and task == "segmentation":
                        arrays[f"iou_per_class_{name}"] = found["iou_per_class"]
    if keep:
        folder.save_arrays(f"{task}_predictions", **arrays)
    return rows


def _layers(args: ProbeArguments, depth: int) -> list[int]:
    """Numbers of the blocks asked for, in order."""
    found: set[int] = set()
    for layer in args.layers:
        found |= set(range(1, depth + 1)) if layer == "all" else {depth if layer == "last" else int(layer)}
    return sorted(found)


def _schedule(args: ProbeArguments, task: str) -> "Schedule":
    """DINOv2's, or one that takes a minute and is for comparing backbones with each other."""
    from hf_vitgeo.probing.dense_training import Schedule

    make = partial(Schedule, seed=args.seed)
    if args.dense_preset == "dinov2":
        return make() if task == "segmentation" else make(steps=38_400, warmup_steps=12_800)
    return make(steps=1_000, warmup_steps=100)
