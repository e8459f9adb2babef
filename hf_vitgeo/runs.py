"""A run folder: the files that one stage of the work hands to the next.

    args.json      every resolved argument of training, the recipe, library versions, the commit
    log.jsonl      one line a training event
    results.json   one flat list of records (the schema below)
    analysis.json  the arguments of the last analysis; probe.json: of the last probe
    arrays/*.npz   what is too large for JSON: maps, predictions
    checkpoint/    what `from_pretrained` reads: the weights at the end of training
    best/          likewise, at the best evaluation
    checkpoints/   what a killed run resumes from
    trackers/      what tensorboard reads

Plots, tables, the report and the cards read these files and never a model. Nothing here imports torch.
"""

import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

#: The fields that identify a record. Measuring again with the same key replaces the record, it never doubles it.
KEY_FIELDS = (
    "metric",
    "model",
    "layer",
    "head",
    "dataset",
    "split",
    "shift",
    "intervention",
    "probe",
    "position_scale",
    "n_permutations",
    "seed",
    "step",
    "sample_hash",
)
#: What was found. `spread` is null or has a `kind`: "sd" (`value`, and `standard_error` of a mean), or "interval95"
#: (`low`, `high`).
VALUE_FIELDS = ("value", "spread", "n_images", "reason")
FIELDS = KEY_FIELDS + VALUE_FIELDS

#: Everything that a run writes into its folder. What else lies there is the user's and is never touched.
_CONTENT = tuple(
    "args.json log.jsonl results.json analysis.json probe.json arrays checkpoint best checkpoints trackers".split()
)

_VERSIONS_OF = ("hf-vitgeo", "torch", "torchvision", "transformers", "datasets", "accelerate", "evaluate", "numpy")


def plain(value: Any) -> Any:
    """Turn numpy and torch scalars and arrays, paths and containers into what JSON can hold.

    Args:
        value: anything made of None, bool, int, float, str, mappings, sequences, numpy or torch values, or paths.

    Returns:
        The same value in built-in types. Not-a-number and infinite floats become None: JSON has no word for them.

    Raises:
        TypeError: for an object of any other kind. Turning it into text would hide a mistake.
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars, torch tensors
        return plain(value.tolist())
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a results file")


def record_key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of a record: the values of `KEY_FIELDS`, None where one is missing."""
    return tuple(record.get(field) for field in KEY_FIELDS)


def check_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Bring one record into the schema.

    Args:
        record: a mapping with at least `metric` and `value`; fields that are left out become None.

    Returns:
        A dict with every field of `FIELDS` in order. A value that is not finite becomes None, with a `reason`.

    Raises:
        ValueError: for a field that the schema does not know, a record without a metric, or a value that is no number.
    """
    unknown = sorted(set(record) - set(FIELDS))
    if unknown:
        raise ValueError(f"a record has the unknown fields {unknown}; the schema knows {list(FIELDS)}")
    if not record.get("metric"):
        raise ValueError(f"a record needs a metric, got {dict(record)!r}")
    row = {field: plain(record.get(field)) for field in FIELDS}
    if row["value"] is not None and (isinstance(row["value"], bool) or not isinstance(row["value"], int | float)):
        raise ValueError(f"the value of {row['metric']!r} is {row['value']!r}, not a number")
    if row["value"] is None and row["reason"] is None:
        row["reason"] = "not a finite number"
    return row


def merge_records(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join two lists of records; new records with the key of an old one take its place.

    Args:
        old: records as they are in a file.
        new: records to add, checked against the schema. All of them are kept: what one measurement hands over at once
            is never thinned out in silence.

    Returns:
        Each old record at its place, or the new ones with its key; then the rest of the new ones.
    """
    fresh: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in new:
        row = check_record(record)
        fresh.setdefault(record_key(row), []).append(row)
    merged: list[dict[str, Any]] = []
    placed: set[tuple[Any, ...]] = set()
    for old_row in old:
        key = record_key(old_row)
        if key not in fresh:
            merged.append(dict(old_row))
        elif key not in placed:
            merged += fresh[key]
            placed.add(key)
    return merged + [row for key, rows in fresh.items() if key not in placed for row in rows]


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that after a crash it is whole or as it was before.

    Args:
        path: the file. Its folder is made.
        text: the content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def environment() -> dict[str, Any]:
    """Library versions, the commit of the code if it runs from a checkout, and the time."""
    versions: dict[str, str | None] = {}
    for name in _VERSIONS_OF:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {"versions": versions, "commit": _commit(), "time": datetime.now(UTC).isoformat(timespec="seconds")}


def _commit() -> str | None:
    """The commit of the checkout that this file runs from; None for an installed package or without git."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        git = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:  # no git on this machine: a run must not die of that
        return None
    return git.stdout.strip() or None if git.returncode == 0 else None


class RunDir:
    """A run folder on disk.

    Args:
        path: the folder. It is made when something is first written, so that reading never leaves one behind.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def checkpoint(self) -> Path:
        """Where the model is, in the form that `from_pretrained` reads."""
        return self.path / "checkpoint"

    def in_use(self) -> list[str]:
        """Names of the files and folders of a run that are there already."""
        return [name for name in _CONTENT if (self.path / name).exists()]

    def start_over(self) -> None:
        """Remove what an earlier run left: no number of it can be taken for one of the next."""
        for path in [*map(self.path.joinpath, self.in_use()), *self.path.glob(".partial_*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def refuse_if_used(self, overwrite: bool, resume: bool) -> None:
        """Refuse a folder that holds a run: nothing of one is ever lost or mixed with another in silence.

        Args:
            overwrite: the user wants it removed.
            resume: the user wants to go on. A run killed before its first checkpoint begins anew.

        Raises:
            ValueError: naming the folder, what is in it and what to do.
        """
        used = self.in_use()
        if not used or overwrite or (resume and ("checkpoints" in used or "checkpoint" not in used)):
            return
        raise ValueError(
            f"--output_dir {self.path} holds a run ({', '.join(used)}); name another folder, go on with "
            "--resume_from_checkpoint auto, or remove it with --overwrite_output_dir"
        )

    def rewind(self, step: int, epoch: int) -> None:
        """Forget what was logged and measured after a checkpoint (its step and epoch): a resumed run does it again."""
        lines = [json.dumps(event) for event in self.events() if event["epoch"] < epoch]
        write_atomically(self.path / "log.jsonl", "".join(f"{line}\n" for line in lines))
        kept = [row for row in self.results() if row["step"] is None or row["step"] <= step]
        self._write_results(kept)

    def write_args(self, arguments: Mapping[str, Any], name: str = "args.json") -> None:
        """Write `args.json`, or `analysis.json`: the arguments, library versions, the commit and the time."""
        content = {**plain(arguments), "environment": environment()}
        write_atomically(self.path / name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def args(self, name: str = "args.json") -> dict[str, Any]:
        """Read `args.json`, or `analysis.json`; an empty dict where there is none."""
        path = self.path / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def log(self, **event: Any) -> None:
        """Append one event to `log.jsonl`."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "log.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(plain(event), allow_nan=False) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """Read `log.jsonl`; an empty list where there is none. A last line that a crash cut off is left out."""
        path = self.path / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
        return [json.loads(line) for line in lines]

    def append_results(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Add records to `results.json`; one with a known key replaces the old one. The file is whole or unchanged.

        Args:
            records: mappings of the schema's fields (`FIELDS`); numpy and torch scalars are turned into numbers.

        Returns:
            Every record of the file as it is now.

        Raises:
            ValueError: for a record outside the schema; the file stays as it was.
        """
        merged = merge_records(self.results(), records)
        self._write_results(merged)
        return merged

    def _write_results(self, rows: Sequence[Mapping[str, Any]]) -> None:
        lines = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in rows)
        write_atomically(self.path / "results.json", f"[\n{lines}\n]\n" if rows else "[]\n")

    def results(self) -> list[dict[str, Any]]:
        """Read `results.json`; an empty list where there is none."""
        path = self.path / "results.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    def save_arrays(self, name: str, **arrays: np.ndarray) -> Path:
        """Write `arrays/<name>.npz` (compressed), whole or not at all."""
        folder = self.path / "arrays"
        folder.mkdir(parents=True, exist_ok=True)
        target, temporary = folder / f"{name}.npz", folder / f".{name}.tmp.npz"
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]  # numpy's stub mistakes names for a flag
        os.replace(temporary, target)
        return target

    def load_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Read `arrays/<name>.npz`."""
        with np.load(self.path / "arrays" / f"{name}.npz", allow_pickle=False) as content:
            return {key: content[key] for key in content.files}
