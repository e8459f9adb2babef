"""Run the experiments of paper A or B at the scale one can afford, and judge the paper's claims."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from hf_vitgeo.reproduction.scales import CELLS, SCALES


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, run what is not yet there, and build the report.

    Args:
        argv: command line; that of the process where it is None.
    """
    parser = argparse.ArgumentParser(prog="reproduce.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("paper", choices=list(CELLS), help="Whose experiments.")
    scales = "; ".join(f"{name}: {scale.source}" for name, scale in SCALES.items())
    parser.add_argument("--scale", choices=list(SCALES), required=True, help=scales)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="Seeds of training.")
    parser.add_argument("--cells", nargs="+", help="Some of: " + "; ".join(map(" ".join, CELLS.values())))
    parser.add_argument("--dataset_name", help="Hub id or local folder instead of the scale's.")
    parser.add_argument("--output_dir", type=Path, help="Folder; runs/reproduce_<paper>_<scale> if left out.")
    parser.add_argument("--train_flags", default="", help="Further flags of every training, as one string.")
    parser.add_argument("--launch", help="Words before each training, such as 'accelerate launch'.")
    parser.add_argument("--shard", default="1/1", help="i/n runs every n-th run from the i-th on.")
    args = parser.parse_args(argv)
    number, _, count = args.shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        parser.error(f"--shard is {args.shard!r}; allowed is i/n with i from 1 to n, such as 2/4")
    if any(seed < 0 for seed in args.seeds):
        parser.error(f"--seeds are {args.seeds}; allowed are whole numbers of at least 0")
    # read when tqdm is imported: the bar of a run vanishes with it, that of the grid stays
    os.environ.setdefault("TQDM_LEAVE", "")
    from hf_vitgeo.reproduction.grid import Grid, run_grid

    root = args.output_dir or Path("runs") / f"reproduce_{args.paper}_{args.scale}"
    cells = tuple(args.cells or CELLS[args.paper])
    grid = Grid(args.paper, args.scale, tuple(args.seeds), cells, args.dataset_name, args.train_flags)
    try:
        failed = run_grid(grid, root, (int(number), int(count)), args.launch)
    except ValueError as error:
        parser.error(str(error))
    from hf_vitgeo.reporting.grids import load_grid
    from hf_vitgeo.reproduction.claims import claims_of
    from hf_vitgeo.reproduction.report import build_grid_report

    found = load_grid(root)
    if found.runs:
        page = build_grid_report(root)
        for claim in claims_of(args.paper, found.runs):
            print(f"{claim.verdict:<24}{claim.name}" + (f" ({claim.reason})" if claim.reason else ""))
        print(f"report: {page}")
    for name, reason in failed.items():
        print(f"failed: {name}: {reason}")
    if failed:
        raise SystemExit(1)
