"""Command-line arguments of DINO pre-training (paper C). No torch."""

from dataclasses import dataclass, field
from typing import Literal

from hf_vitgeo.training.loop_arguments import LoopArguments, flag

#: Neighbours of the k-NN over training: DINO's best number.
KNN_NEIGHBOURS = 20


@dataclass
class DINOArguments(LoopArguments):
    """Arguments of `scripts/train_dino.py`. Defaults: DINO's ViT-S/16 (PROTOCOLS C.2), and paper C's 200 epochs."""

    output_dir: str = flag("runs/dino", "Run folder: arguments, log, results and checkpoints.")
    preset: Literal["vit_s16_paper_a", "vit_compact_paper_b", "vit_s16_dino", "tiny"] | None = flag(
        "vit_s16_dino", "Model to start from; the flags below change it. image_size is the side of a global crop."
    )
    drop_path_rate: float | None = flag(0.1, "Largest rate of stochastic depth, in the student only.")

    local_crop_size: int = flag(96, "Side of the local crops in pixels, a multiple of the patch.")
    num_local_crops: int = flag(8, "Local crops of a picture, beside its two global ones; 0 for none.")
    global_crop_scale: list[float] = field(
        default_factory=lambda: [0.4, 1.0],
        metadata={"help": "Smallest and largest share of the picture in a global crop."},
    )
    local_crop_scale: list[float] = field(
        default_factory=lambda: [0.05, 0.4],
        metadata={"help": "Smallest and largest share of the picture in a local crop."},
    )

    out_dim: int = flag(65536, "Outputs of the head, K.")
    head_hidden_dim: int = flag(2048, "Width inside the head.")
    head_bottleneck_dim: int = flag(256, "Width before the head's last layer.")
    norm_last_layer: bool = flag(True, "Keep the norms of the last layer's rows at 1.")
    student_temperature: float = flag(0.1, "Temperature of the student's softmax.")
    teacher_temperature: float = flag(0.04, "Temperature of the teacher's softmax, after its warm-up.")
    warmup_teacher_temperature: float = flag(0.04, "The teacher's temperature in epoch 0, where it has a warm-up.")
    warmup_teacher_epochs: int = flag(0, "Epochs from the one temperature to the other.")
    center_momentum: float = flag(0.9, "How much of the centre stays at each optimiser step.")
    teacher_momentum: float = flag(
        0.996, "How much of the teacher stays at the first step; at the end 1, by a cosine."
    )
    freeze_last_layer: int = flag(1, "First epochs in which the student's last layer stays as it is.")

    per_device_train_batch_size: int = flag(64, "Pictures a micro-batch on each process.")
    learning_rate: float | None = flag(None, "Largest learning rate; left out: 5e-4 for each 256 pictures a step.")
    min_learning_rate: float = flag(1e-6, "What the cosine of the learning rate goes to.")
    weight_decay: float = flag(0.04, "Decoupled weight decay of all but vectors, at the first step.")
    final_weight_decay: float = flag(0.4, "What the cosine of the weight decay goes to.")
    max_grad_norm: float = flag(3.0, "Clip the gradient of each parameter to this norm of its own.")

    knn_train_images: int = flag(5000, "Training pictures for k-NN at each measurement, a fixed seeded sample.")
    knn_eval_images: int = flag(1000, "Evaluation pictures for it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_numbers(
            "above 0",
            "local_crop_size out_dim head_hidden_dim head_bottleneck_dim student_temperature teacher_temperature "
            "warmup_teacher_temperature knn_train_images knn_eval_images learning_rate",
        )
        self.check_numbers(
            "of at least 0",
            "num_local_crops warmup_teacher_epochs freeze_last_layer min_learning_rate final_weight_decay",
        )
        self.check_shares("center_momentum teacher_momentum")
        if self.knn_train_images < KNN_NEIGHBOURS:
            raise ValueError(
                f"--knn_train_images is {self.knn_train_images}; allowed is a whole number of at least "
                f"{KNN_NEIGHBOURS}, the neighbours"
            )
        for name in ("global_crop_scale", "local_crop_scale"):
            scale = getattr(self, name)
            if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
                raise ValueError(f"--{name} is {scale}; allowed are two shares in (0, 1], the smaller one first")

    @property
    def label(self) -> str:
        """Name of the model in results: paper C's variants, and the position encoding where it is not learned."""
        parts = []
        if self.attention_probs_function == "entmax15":
            parts.append("entmax15")
        if self.num_register_tokens:
            parts.append(f"register-{self.num_register_tokens}")
        if self.token_specialization not in (None, "none"):
            parts.append("specialization")
        if self.position_encoding not in (None, "learned"):
            parts.append(str(self.position_encoding))
        return self.model_label or "+".join(parts) or "cls baseline"
