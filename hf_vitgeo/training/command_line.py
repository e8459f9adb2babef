"""From the words of a command line to a dataclass: recipe, file and flags. No torch."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

from hf_vitgeo.recipes import recipe, words_of

#: Flags with a value "no".
_SAY_NO = ("mixed_precision", "checkpointing_steps")


def parse(dataclass_type: Any, argv: Sequence[str] | None, description: str, prog: str | None = None) -> Any:
    """Parse a command line into a dataclass: the recipe first, the file over it, the flags over both.

    Args:
        dataclass_type: whose fields are the flags.
        argv: the words, or None for those of the process.
        description: one sentence for `--help`.
        prog: name of the command.

    Returns:
        An instance. A wrong flag, key or value ends the process with status 2 and one line that names it.
    """
    parser = HfArgumentParser(dataclass_type, description=description, prog=prog, allow_abbrev=False)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        words = [*_given_beside_flags(dataclass_type, words), *words]
        return parser.parse_args_into_dataclasses(args=words)[0]
    except ValueError as error:
        unknown = "Some specified arguments are not used by the HfArgumentParser: "
        parser.error(str(error).replace(unknown, "unknown arguments: "))


def _given_beside_flags(dataclass_type: Any, words: list[str]) -> list[str]:
    """The flags that a recipe and a file stand for; argparse then checks their values like any other."""
    known = {each.name for each in fields(dataclass_type)}
    before = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in {"recipe", "config"} & known:
        before.add_argument(f"--{name}")
    asked = vars(before.parse_known_args(words)[0])
    given: list[str] = []
    if asked.get("recipe"):
        chosen = recipe(asked["recipe"])
        if set(chosen.overrides) - known:
            raise ValueError(f"--recipe {asked['recipe']} is one of scripts/{chosen.script}")
        given += words_of(chosen.overrides)
    if asked.get("config"):
        content = _read_flags(asked["config"])
        if unknown := sorted(set(content) - known):
            raise ValueError(f"--config {asked['config']} has the unknown keys {', '.join(unknown)}")
        # YAML reads a bare no as False
        say_no = {name: "no" for name in _SAY_NO if content.get(name) is False}
        given += words_of({**content, **say_no})
    return given


def _read_flags(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (OSError, json.JSONDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"--config {path} must hold names and values of flags")
    return content
