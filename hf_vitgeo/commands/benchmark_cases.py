"""What `scripts/benchmark.py` times, group by group: ours, and what one would use instead, on the same data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Several ways to the same result.

    Attributes:
        what: what is computed, with shapes.
        calls: each way by name.
        reference: the name that the others are divided by.
        images: pictures that one call handles, for a rate; 0 where that says nothing.
        flop: floating-point operations of one call, for utilisation; 0 where nobody counted.
        memory: whether the growth of the process is part of the question.
    """

    what: str
    calls: dict[str, Call]
    reference: str
    images: int = 0
    flop: float = 0.0
    memory: bool = False


def entmax(device: Any, compiled: bool) -> Iterator[Case]:
    """entmax-1.5 alone, forward and with its gradient, at the token counts of papers A to C and beyond."""
    import torch

    from hf_vitgeo.models.entmax import entmax15

    try:
        from entmax import entmax15 as package_entmax15
        from entmax import entmax_bisect
    except ImportError:
        package_entmax15 = entmax_bisect = None

    def softmax(scores: Any) -> Any:
        return scores.softmax(-1)

    for shape in ((64, 8, 65, 65), (32, 6, 197, 197), (2, 6, 1025, 1025), (1, 2, 1024, 4096)):
        for dtype in (torch.float32, torch.bfloat16):
            ways: dict[str, Callable[[Any], Any]] = {"softmax, eager": softmax, "ours, eager": entmax15}
            if compiled:
                torch._dynamo.reset()
                ways["softmax, compiled"] = torch.compile(softmax, fullgraph=True)
                ways["ours, compiled"] = torch.compile(entmax15, fullgraph=True)
            if package_entmax15 is not None:
                ways["the entmax package"] = lambda scores: package_entmax15(scores, dim=-1)
                ways["entmax_bisect"] = lambda scores: entmax_bisect(scores, alpha=1.5, dim=-1)
            scores = torch.randn(shape, device=device, dtype=dtype).requires_grad_()
            upstream = torch.randn_like(scores)
            name = f"{tuple(shape)} {str(dtype).removeprefix('torch.')}"
            fixed = scores.detach()

            def forward(function: Callable[[Any], Any], z: Any = fixed) -> Any:
                return function(z)

            def both(function: Callable[[Any], Any], z: Any = scores, g: Any = upstream) -> None:
                function(z).backward(g)
                z.grad = None

            yield Case(f"entmax15, forward, {name}", _bind(ways, forward), "softmax, eager")
            yield Case(f"entmax15, forward and backward, {name}", _bind(ways, both), "softmax, eager")


def _bind(ways: dict[str, Callable[[Any], Any]], run: Callable[[Callable[[Any], Any]], Any]) -> dict[str, Call]:
    return {name: partial(run, way) for name, way in ways.items()}


def step(device: Any, compiled: bool) -> Iterator[Case]:
    """A training step (forward, backward, AdamW) with each attention function."""
    import torch

    from hf_vitgeo.models import ViTGeoConfig, ViTGeoForImageClassification
    from hf_vitgeo.models.configuration_vitgeo import as_pair

    small = device.type == "cpu"
    for title, preset, changes, batch in (
        ("compact ViT, 64 tokens", "vit_compact_paper_b", {}, 32 if small else 512),
        ("ViT-S/16 at 224", "vit_s16_dino", {"drop_path_rate": 0.0}, 2 if small else 64),
    ):
        calls, flop = {}, 0.0
        for name, function, kernel in (
            ("softmax, eager", "softmax", "eager"),
            ("softmax, sdpa", "softmax", "sdpa"),
            ("entmax15, eager", "entmax15", "eager"),
        ):
            config = ViTGeoConfig.from_preset(preset, num_labels=100, attention_probs_function=function, **changes)
            config._attn_implementation = kernel
            model = ViTGeoForImageClassification(config).to(device)
            pictures = torch.randn(batch, 3, *as_pair(config.image_size), device=device)
            labels = torch.randint(0, 100, (batch,), device=device)
            calls[name] = _training_step(model, pictures, labels)
            tokens = 1 + config.grid_size[0] * config.grid_size[1]
            # 6 operations a weight and token; two products of T x T x D a layer, forward and twice backward
            attention = 12 * config.num_hidden_layers * tokens * config.hidden_size
            flop = batch * tokens * (6 * sum(p.numel() for p in model.parameters()) + attention)
        yield Case(f"training step, {title}, batch {batch}", calls, "softmax, eager", batch, flop)


def _training_step(model: Any, pictures: Any, labels: Any) -> Call:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run() -> None:
        model(pixel_values=pictures, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def training(device: Any, compiled: bool) -> Iterator[Case]:
    """Supervised training of the compact ViT, data path included: our loop's parts, and a plain loop."""
    from hf_vitgeo.commands.benchmark_training import epochs

    yield from epochs(device)


def ssdt(device: Any, compiled: bool) -> Iterator[Case]:
    """SSDT of each picture of 12 layers, as `analyze` needs it."""
    from hf_vitgeo.commands.benchmark_analysis import ssdt_by_picture

    yield from ssdt_by_picture()


def recording(device: Any, compiled: bool) -> Iterator[Case]:
    """MAD and entropy of a ViT with 12 layers: streamed, and from stored maps."""
    from hf_vitgeo.commands.benchmark_analysis import heads

    yield from heads(device)


def analyze(device: Any, compiled: bool) -> Iterator[Case]:
    """The pass of `analyze` as a whole: streamed, and from stored hidden states and maps."""
    from hf_vitgeo.commands.benchmark_analysis import whole_pass

    yield from whole_pass(device)


def dino(device: Any, compiled: bool) -> Iterator[Case]:
    """A step of DINO pre-training."""
    from hf_vitgeo.commands.benchmark_dino import steps

    yield from steps(device, None)


GROUPS: dict[str, Callable[[Any, bool], Iterator[Case]]] = {
    "entmax": entmax,
    "step": step,
    "ssdt": ssdt,
    "recording": recording,
    "analyze": analyze,
    "training": training,
    "dino": dino,
}
