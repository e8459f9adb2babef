"""Score a frozen backbone: k-NN, linear classifier, segmentation, depth; beside random weights and raw pixels."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_vitgeo.commands.model_inputs import complete, label_of
from hf_vitgeo.commands.probe_arguments import DENSE_TASKS, ProbeArguments
from hf_vitgeo.runs import RunDir, check_record
from hf_vitgeo.training.command_line import parse


def main(argv: Sequence[str] | None = None) -> None:
    """Parse, load model and pictures, probe, write the results and print them.

    Args:
        argv: command line; that of the process where it is None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        words.insert(0, "--model")
    args = parse(ProbeArguments, words, __doc__, "probe.py")
    for row in run(args):
        of = row["intervention"] or row["model"]
        value = "not defined" if row["value"] is None else f"{row['value']:.4f}"
        spread = row["spread"]
        interval = f" ({spread['low']:.4f} to {spread['high']:.4f})" if spread else ""
        layer = "" if row["layer"] is None else f"layer {row['layer']}, "
        print(f"{row['metric']:<16} {of:<16} {layer + row['probe']:<28} {value}{interval}")
    print(f"results in {Path(args.output_dir or args.model) / 'results.json'}")


def run(args: ProbeArguments) -> list[dict[str, Any]]:
    """Probe with parsed arguments and add the results to a run folder.

    Args:
        args: see `ProbeArguments`.

    Returns:
        The records of this measurement.

    Raises:
        SystemExit: with one line, for what cannot be probed.
    """
    trained = RunDir(args.model).args()
    try:
        dataset_name = complete(args, trained)
        if args.task[0] in DENSE_TASKS:
            from hf_vitgeo.commands.probe_dense import probe
        else:
            from hf_vitgeo.commands.probe_classification import probe
        rows = probe(args, dataset_name)
    except (ValueError, OSError, MemoryError) as error:
        raise SystemExit(f"probe.py: {error}") from error
    label = label_of(args.model, args.model_label)
    common = {"model": label, "seed": trained.get("seed"), "step": trained.get("steps")}
    records = [check_record({**common, **row}) for row in rows]
    target = RunDir(args.output_dir or args.model)
    target.append_results(records)
    target.write_args({**vars(args), "dataset_name": dataset_name}, "probe.json")
    if not target.args():
        target.write_args({"model": label})
    return records
