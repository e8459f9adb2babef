"""Command-line arguments of the probes. No torch."""

from dataclasses import dataclass, field
from typing import Literal

from hf_vitgeo.training.loop_arguments import flag

DENSE_TASKS = ("segmentation", "depth")
TASKS = ("knn", "linear", *DENSE_TASKS)
ENCODINGS = ("millimetres", "kitti", "sunrgbd")


@dataclass
class ProbeArguments:
    """Arguments of `scripts/probe.py`. Defaults: DINO's probes of ViT-S (PROTOCOLS C.2)."""

    model: str = field(metadata={"help": "Run folder, checkpoint folder or Hub id; may stand first without its flag."})
    task: list[str] = field(default_factory=lambda: ["knn"], metadata={"help": f"Any of {', '.join(TASKS)}."})
    output_dir: str | None = flag(None, "Run folder for the results; the model's own where it is a run folder.")
    model_label: str | None = flag(None, "Name of the model in results; that of its run where left out.")
    dataset_name: str | None = flag(None, "Hub id, local folder or 'scenes'; that of the run where left out.")
    train_split: str = flag("train", "Split whose labels the probe knows.")
    split: str | None = flag(None, "Split to score on; the run's evaluation split where left out, else 'test'.")
    image_column_name: str | None = flag(None, "Column of the pictures; found from the features where left out.")
    label_column_name: str | None = flag(None, "Column of the classes; found from the features where left out.")
    skip_bad_images: bool = flag(False, "Leave out pictures that cannot be read, and count them.")
    max_train_samples: int | None = flag(None, "Use a seeded random subset of the training split of this size.")
    max_eval_samples: int | None = flag(None, "Likewise of the split that is scored.")
    controls: bool = flag(
        True, "Also score the same backbone with random weights, and (not for masks and depth) raw pixels."
    )
    k: list[int] = field(default_factory=lambda: [10, 20, 100, 200], metadata={"help": "Neighbours of k-NN."})
    temperature: float = flag(0.07, "Temperature of k-NN's votes.")
    num_blocks: int = flag(4, "Last blocks whose [CLS] the linear probe sees; k-NN sees the last one.")
    average_pool: bool = flag(False, "The linear probe also sees the mean patch token (DINO: for ViT-B, one block).")
    linear_epochs: int = flag(100, "Passes of the linear probe over the training features.")
    linear_batch_size: int = flag(1024, "Pictures a step of the linear probe.")
    mask_column_name: str | None = flag(None, "Column of the masks; 'mask' or the like where left out.")
    num_classes: int | None = flag(None, "Classes of the masks; left out: the largest one found, and one more.")
    zero_is_ignored: bool = flag(False, "Masks say 0 for no class and count from 1, as ADE20K's do.")
    depth_column_name: str | None = flag(None, "Column of the depth maps; 'depth' or the like where left out.")
    depth_encoding: str = flag("millimetres", "What whole numbers of depth mean: millimetres, kitti, sunrgbd.")
    min_depth: float = flag(1e-3, "Smallest depth that counts, in metres (NYU: .001).")
    max_depth: float = flag(10.0, "Largest depth that counts, in metres (NYU: 10, KITTI: 80).")
    short_side: int | None = flag(None, "Shorter side of a picture in pixels; left out: the side of a window.")
    window: int | None = flag(None, "Side of the windows in pixels; left out: what the model takes.")
    layers: list[str] = field(
        default_factory=lambda: ["last"], metadata={"help": "Blocks whose patches are probed: numbers, 'last', 'all'."}
    )
    dense_preset: Literal["quick", "dinov2"] = flag(
        "quick", "Training of the dense heads: 1,000 steps, or DINOv2's 40,000."
    )
    batch_size: int = flag(128, "Pictures a forward pass.")
    dataloader_num_workers: int = flag(0, "Processes that prepare pictures.")
    device: str = flag("auto", "Where to run: auto, cpu, cuda, mps.")
    seed: int = flag(0, "Seed of subsets, random weights and the linear probe.")

    def __post_init__(self) -> None:
        names = "short_side window num_classes max_train_samples max_eval_samples num_blocks linear_epochs"
        names += " linear_batch_size batch_size"
        for name in names.split():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}; allowed is a whole number of at least 1")
        if unknown := [task for task in self.task if task not in TASKS]:
            raise ValueError(f"--task is {unknown[0]!r}; allowed are {', '.join(TASKS)}")
        if not self.task or not self.k or min(self.k) < 1:
            raise ValueError(f"--task is {self.task} and --k {self.k}; both need a value, of --k at least 1")
        if len({task in DENSE_TASKS for task in self.task}) > 1:
            raise ValueError(
                f"--task is {self.task}; {', '.join(DENSE_TASKS)} need other data than the rest: ask twice"
            )
        for layer in self.layers:
            if layer not in ("last", "all") and (not layer.isdecimal() or int(layer) < 1):
                raise ValueError(f"--layers has {layer!r}; allowed are numbers of at least 1, 'last' and 'all'")
        if self.depth_encoding not in ENCODINGS:
            raise ValueError(f"--depth_encoding is {self.depth_encoding!r}; allowed are {', '.join(ENCODINGS)}")
        if not 0 < self.min_depth < self.max_depth:
            raise ValueError(
                f"--min_depth is {self.min_depth} and --max_depth {self.max_depth}; allowed is 0 < min < max"
            )
        if not self.temperature > 0:
            raise ValueError(f"--temperature is {self.temperature}; allowed is a number above 0")
