"""Time our parts against what one would use instead, in one process and one run, as ratios."""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, measure, print a Markdown table and write it with the numbers behind it.

    Args:
        argv: command line; that of the process where it is None.
    """
    parser = argparse.ArgumentParser(prog="benchmark.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmark"), help="Folder for the two files.")
    parser.add_argument("--repeats", type=int, default=7, help="Alternating repeats of each pair.")
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error(f"--repeats is {args.repeats}; allowed is a whole number of at least 1")
    import torch

    rows = [_compare(args.repeats, *pair) for pair in _pairs()]
    machine = {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    table = "\n".join(
        ["| what | instead of | ratio of medians | smallest to largest | ms |", "| --- | --- | --- | --- | --- |"]
        + [
            f"| {r['what']} | {r['instead_of']} | {r['ratio']:.2f} | {r['ratio_low']:.2f} to {r['ratio_high']:.2f} "
            f"| {r['ms']:.2f} |"
            for r in rows
        ]
    )
    from hf_vitgeo.runs import write_atomically

    write_atomically(args.output / "benchmark.json", json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    write_atomically(args.output / "benchmark.md", f"{table}\n\n{machine}\n")
    print(f"{table}\n\n{machine}\nratio below 1: ours is faster. Files in {args.output}")


def _pairs() -> list[tuple[str, str, Callable[[], Any], Callable[[], Any]]]:
    """(what, instead of what, ours, theirs)."""
    import numpy as np
    import torch
    from entmax import entmax15 as package_entmax15
    from scipy.stats import spearmanr
    from transformers import ViTConfig, ViTModel

    from hf_vitgeo.metrics.ssdt.pure import grid_distance, ssdt
    from hf_vitgeo.models.conversion import from_vit
    from hf_vitgeo.models.entmax import entmax15

    scores = torch.randn(8, 6, 197, 197)
    similarity = np.random.default_rng(0).standard_normal((196, 196)).astype(np.float32)
    upper = np.triu_indices(196, 1)
    minus_distance = -grid_distance((14, 14))[upper]
    shape: dict[str, Any] = {
        "hidden_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 192,
    }
    theirs = ViTModel(ViTConfig(**shape, image_size=32, patch_size=4), add_pooling_layer=False).eval()
    ours, pictures = from_vit(theirs), torch.randn(32, 3, 32, 32)

    def step(model: Any) -> None:
        model(pictures).last_hidden_state.sum().backward()

    return [
        (
            "entmax15, forward, (8, 6, 197, 197)",
            "the entmax package",
            lambda: entmax15(scores),
            lambda: package_entmax15(scores, dim=-1),
        ),
        ("entmax15, forward, (8, 6, 197, 197)", "softmax", lambda: entmax15(scores), lambda: scores.softmax(-1)),
        (
            "SSDT of one 14x14 grid",
            "scipy's spearmanr",
            lambda: ssdt(similarity, (14, 14)),
            lambda: spearmanr(similarity[upper], minus_distance),
        ),
        ("ViTGeo, forward and backward, 64 tokens", "transformers' ViT", lambda: step(ours), lambda: step(theirs)),
    ]


def _compare(
    repeats: int, what: str, instead_of: str, ours: Callable[[], Any], theirs: Callable[[], Any]
) -> dict[str, Any]:
    """Alternate the two, so that a busy machine slows both, and compare medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(-1, repeats):  # the first round warms up
        for call, kept in zip((ours, theirs), times, strict=True):
            started = time.perf_counter()
            call()
            if repeat >= 0:
                kept.append(time.perf_counter() - started)
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return {
        "what": what,
        "instead_of": instead_of,
        "ratio": statistics.median(times[0]) / statistics.median(times[1]),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "ms": 1000 * statistics.median(times[0]),
        "repeats": repeats,
    }
