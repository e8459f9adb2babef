"""Build the report of a grid, or the comparison of one or several runs, from their result files alone."""

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> None:
    """Parse and build.

    Args:
        argv: command line; that of the process where it is None.
    """
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("runs", nargs="+", type=Path, help="Run folders with a results.json, or the folder of a grid.")
    parser.add_argument("--output", type=Path, help="The page; report.html in the first run where left out.")
    parser.add_argument("--title", default="Spatial structure of Vision Transformers", help="Title of the page.")
    args = parser.parse_args(argv)
    from hf_vitgeo.reporting.report import build_report
    from hf_vitgeo.reproduction.report import build_grid_report

    try:
        if (args.runs[0] / "grid.json").exists():
            if len(args.runs) > 1 or args.output:
                parser.error("the report of a grid stands in its folder: give that folder alone")
            page = build_grid_report(args.runs[0])
        else:
            page = build_report(args.runs, args.output or args.runs[0] / "report.html", title=args.title)
    except ValueError as error:
        parser.error(str(error))
    print(f"report: {page}")
