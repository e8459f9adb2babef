"""Time our parts against what one would use instead, in one process and one run, as ratios."""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hf_vitgeo.commands.benchmark_cases import GROUPS, Case
from hf_vitgeo.commands.benchmark_dino import steps


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, measure, print a Markdown table and write it with the numbers behind it.

    Args:
        argv: command line; that of the process where it is None.
    """
    parser = argparse.ArgumentParser(prog="benchmark.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("runs/benchmark"), help="Folder for the two files.")
    parser.add_argument("--repeats", type=int, default=7, help="Alternating repeats of each case.")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="Groups to measure.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="Where to measure.")
    parser.add_argument("--dino_checkout", type=Path, help="Folder with DINO's original code, to time beside ours.")
    parser.add_argument("--no_compile", action="store_true", help="Leave out what needs a compiler.")
    args = parser.parse_args(argv)
    if args.dino_checkout and not (args.dino_checkout / "main_dino.py").is_file():
        parser.error(f"--dino_checkout is '{args.dino_checkout}', but there is no main_dino.py in it")
    if args.repeats < 1:
        parser.error(f"--repeats is {args.repeats}; allowed is a whole number of at least 1")
    import torch

    from hf_vitgeo.runs import write_atomically

    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device is 'cuda', but torch finds no such device here")
    device = torch.device(args.device)
    machine = {**describe(device), "matmul_peak_gflops": matmul_peak(device)}
    rows: list[dict[str, Any]] = []
    groups = dict(GROUPS)
    if args.dino_checkout:
        groups["dino"] = lambda device, compiled: steps(device, args.dino_checkout)
    for name in args.only:
        for case in groups[name](device, not args.no_compile):
            found = measure(case, args.repeats, device, machine["matmul_peak_gflops"])
            rows += found
            print("\n".join(table_rows(found)), flush=True)
    table = "\n".join([*HEADER, *table_rows(rows)])
    write_atomically(args.output / "benchmark.json", json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    write_atomically(args.output / "benchmark.md", f"{table}\n\n{machine}\n")
    print(f"\n{machine}\nratio below 1: faster than the reference. Files in {args.output}")


HEADER = ("| what | way | ratio to | median (smallest to largest) | ms | |", "| --- | --- | --- | --- | --- | --- |")


def table_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of a Markdown table.

    Args:
        rows: results of `measure`.

    Returns:
        One line a row.
    """
    lines = []
    for row in rows:
        ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
        more = [f"{row['images_per_second']:.0f} pictures/s"] if row["images_per_second"] else []
        more += [f"{row['peak_mib']:.0f} MiB more at its peak"] if row["peak_mib"] is not None else []
        more += [f"{100 * row['utilisation']:.0f} % of the matmul peak"] if row["utilisation"] else []
        lines.append(
            f"| {row['what']} | {row['way']} | {row['reference']} | {ratio} | {row['ms']:.2f} | {', '.join(more)} |"
        )
    return lines


def measure(case: Case, repeats: int, device: Any, peak: float) -> list[dict[str, Any]]:
    """Alternate the ways of a case, so that a busy machine slows all of them, and divide by the reference.

    Args:
        case: what to time.
        repeats: timed rounds, after one that warms up.
        device: torch device.
        peak: matrix-product peak in GFLOP/s, for utilisation.

    Returns:
        One row for each way but the reference, and one for that with a ratio of 1.
    """
    times: dict[str, list[float]] = {name: [] for name in case.calls}
    for repeat in range(-1, repeats):
        for name, call in case.calls.items():
            seconds = seconds_of(call, device)
            if repeat >= 0:
                times[name].append(seconds)
    reference = times[case.reference]
    rows = []
    for name, found in times.items():
        growth = peak_growth(case.calls[name]) if case.memory else None
        ratios = [mine / theirs for mine, theirs in zip(found, reference, strict=True)]
        median = statistics.median(found)
        rows.append(
            {
                "what": case.what,
                "way": name,
                "reference": case.reference,
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "ms": 1000 * median,
                "repeats": repeats,
                "images_per_second": case.images / median if case.images else None,
                "peak_mib": growth,
                "utilisation": case.flop / median / 1e9 / peak if case.flop else None,
            }
        )
    return rows


def seconds_of(call: Callable[[], Any], device: Any) -> float:
    """Time one call: by CUDA events on such a device, else by the clock.

    Args:
        call: what to run.
        device: torch device.

    Returns:
        Seconds.
    """
    if device.type == "cpu":
        started = time.perf_counter()
        call()
        return time.perf_counter() - started
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def peak_growth(call: Callable[[], Any]) -> float | None:
    """By how much the process grows at most during a call, in MiB; None where the system does not tell.

    Args:
        call: what to run.

    Returns:
        The largest resident size seen by a thread that looks every two milliseconds, minus that before.
    """
    status = Path("/proc/self/statm")
    if not status.exists():
        return None
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # or what an earlier call left would hide the growth
    page = os.sysconf("SC_PAGE_SIZE") / 2**20
    seen, done = [int(status.read_text().split()[1])], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.append(int(status.read_text().split()[1]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return (max(seen) - seen[0]) * page


def matmul_peak(device: Any) -> float:
    """What a large float32 matrix product reaches here, in GFLOP/s: the best of five."""
    import torch

    side = 1536 if device.type == "cpu" else 8192
    one, other = (torch.randn(side, side, device=device) for _ in range(2))
    best = min(seconds_of(lambda: one @ other, device) for _ in range(5))
    return 2 * side**3 / best / 1e9


def describe(device: Any) -> dict[str, Any]:
    """The machine and the versions, as they stand beside every number."""
    import torch
    import transformers

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if device.type == "cuda" else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
