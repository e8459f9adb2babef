"""`hf-vitgeo train|pretrain|analyze|probe|reproduce|report|benchmark|demo`: one door to the commands."""

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "train": ("train_supervised", "train a classifier and write a run folder"),
    "pretrain": ("train_dino", "pre-train a backbone with DINO"),
    "analyze": ("analyze", "measure a trained model"),
    "probe": ("probe", "score a frozen backbone: k-NN, linear classifier"),
    "reproduce": ("reproduce", "run the experiments of papers A and B, and judge their claims"),
    "report": ("report", "build the comparison report of runs"),
    "benchmark": ("benchmark", "time our parts against what one would use instead"),
    "demo": ("demo", "five small models, trained and measured in some minutes"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Pass the words after the command's name on to its module.

    Args:
        argv: command line; that of the process where it is None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: hf-vitgeo COMMAND [flags]\n\ncommands (hf-vitgeo COMMAND --help says more):")
        for name, (_, text) in COMMANDS.items():
            print(f"  {name:<10} {text}")
        return
    if words[0] == "--version":
        from hf_vitgeo.version import __version__

        print(__version__)
        return
    if words[0] not in COMMANDS:
        print(f"hf-vitgeo: {words[0]!r} is no command; there are {', '.join(COMMANDS)}", file=sys.stderr)
        raise SystemExit(2)
    import_module(f"hf_vitgeo.commands.{COMMANDS[words[0]][0]}").main(words[1:])


if __name__ == "__main__":
    main()
