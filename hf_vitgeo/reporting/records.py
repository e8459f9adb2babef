"""From run folders to the records of each model, and the picking of one measurement among them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_vitgeo.runs import KEY_FIELDS, RunDir

Record = Mapping[str, Any]
#: The records of each model by the label that figures and tables show.
RecordsByModel = Mapping[str, Sequence[Record]]
#: The content of `args.json` for each of these labels; empty where nothing is recorded.
ArgsByModel = Mapping[str, Mapping[str, Any]]

JPEG = "jpeg_q5"
BLUR = "blur_s2.5_k5"
#: What readers see for the names of the shifts; any other shift is shown under its own name.
SHIFT_TITLES = {JPEG: "JPEG, quality 5", BLUR: "blur, σ 2.5 px, 5×5 px"}

# What was done to the model or the images. Unless one is asked for, a record under it is another measurement.
_CONDITION_FIELDS = ("shift", "intervention", "position_scale")
# How well, and when, something was measured; all the other key fields say what it is.
_EFFORT_FIELDS = ("step", "n_permutations", "sample_hash")
# Fields that the label shows, but only where the merged records have several values of them.
_LABEL_FIELDS = ("seed", "dataset", "split")


def select(records: Iterable[Record], metric: str, **fields: Any) -> list[Record]:
    """Pick the records of one metric.

    Args:
        records: the records of one model.
        metric: the metric's name.
        **fields: values that key fields must have. `shift`, `intervention` and `position_scale` must be null unless
            they are named here, so that the plain measurement is what one gets without asking; `...` allows any value
            but null. The other fields are free.

    Returns:
        The records in order of layer, head and position scale.
    """
    wanted: dict[str, Any] = dict.fromkeys(_CONDITION_FIELDS) | fields

    def fits(record: Record) -> bool:
        found = ((record.get(field), value) for field, value in wanted.items())
        return record["metric"] == metric and all(
            have is not None if value is ... else have == value for have, value in found
        )

    def place(record: Record) -> tuple[float, ...]:
        order = (record.get(field) for field in ("layer", "head", "position_scale"))
        return tuple(-1 if value is None else value for value in order)

    return sorted((record for record in records if fits(record)), key=place)


def first(records: Iterable[Record], metric: str, **fields: Any) -> Record | None:
    """The first record that `select` picks, or None where there is none."""
    return next(iter(select(records, metric, **fields)), None)


def last_layer(records: Iterable[Record], intervention: str | None = None) -> int | None:
    """The last layer at which SSDT was measured: the output of the last block. None where it was not measured."""
    layers = [record["layer"] for record in select(records, "ssdt", intervention=intervention)]
    return max((layer for layer in layers if layer is not None), default=None)


def spread_of(record: Record | None, field: str) -> float | None:
    """A field of a record's spread, such as "sd" or "low"; None where the record or the field is missing.

    The s.d. of kind "sd" is stored as `value`, the one of an interval as `sd`: both are asked for as "sd".
    """
    spread = (record or {}).get("spread") or {}
    if field == "sd" and spread.get("kind") == "sd":
        return spread.get("value")
    return spread.get(field)


def condition(records: Sequence[Record]) -> str:
    """The name of the condition that the records of one label belong to: the label without seed and data set."""
    return str(records[0]["model"])


def load_runs(run_dirs: Sequence[Path]) -> tuple[dict[str, list[Record]], dict[str, dict[str, Any]]]:
    """Read run folders and merge their records model by model.

    Where one folder holds a measurement several times, the latest training step counts (a record without a step is the
    finished model), then the most permutations, then the most images.

    Args:
        run_dirs: run folders with a results.json; one may hold the records of several models.

    Returns:
        The records and the arguments, both by label: the model's name, with the seed, data set or split in brackets
        where the merged records have several of them.

    Raises:
        ValueError: if a folder has no results, or if two folders disagree about the same measurement of a model.
    """
    if not run_dirs:
        raise ValueError("no run folder was given: a report needs at least one")
    folders = {Path(folder).resolve(): RunDir(folder) for folder in run_dirs}
    kept: dict[tuple[Any, ...], tuple[Record, Path]] = {}
    for folder, run in folders.items():
        for record in _records_of(run):
            key = tuple(record.get(field) for field in KEY_FIELDS if field not in _EFFORT_FIELDS)
            if key in kept:
                _check_agreement(kept[key], (record, folder))
            if key not in kept or _effort(record) >= _effort(kept[key][0]):
                kept[key] = (record, folder)
    found = {field: {record.get(field) for record, _ in kept.values()} - {None} for field in _LABEL_FIELDS}
    shown = [field for field, values in found.items() if len(values) > 1]
    by_model: dict[str, list[Record]] = {}
    sources: dict[str, dict[Path, None]] = {}  # a dict keeps the order of the folders, a set does not
    for kept_record, folder in kept.values():
        label = _label(kept_record, shown)
        by_model.setdefault(label, []).append(kept_record)
        sources.setdefault(label, {})[folder] = None
    args = {
        label: _args_of(condition(by_model[label]), [folders[path] for path in sources[label]]) for label in by_model
    }
    return by_model, args


def _records_of(run: RunDir) -> list[dict[str, Any]]:
    """The records of a run, each with a model's name."""
    records = run.results()
    if not records:
        raise ValueError(
            f"{run.path} has no results.json with records in it; measure its model first: hf-vitgeo analyze writes one"
        )
    name = run.args().get("model") or run.path.resolve().name
    return [{**record, "model": record.get("model") or name} for record in records]


def _effort(record: Record) -> tuple[float, ...]:
    step = record.get("step")
    return (math.inf if step is None else step, record.get("n_permutations") or 0, record.get("n_images") or 0)


def _check_agreement(old: tuple[Record, Path], new: tuple[Record, Path]) -> None:
    """Refuse two folders that say different things about one measurement at one step."""
    (record, folder), (other, other_folder) = old, new
    if folder != other_folder and record.get("step") == other.get("step") and record != other:
        raise ValueError(
            f"{folder} and {other_folder} both measured {record['metric']!r} of the model {record['model']!r} "
            f"(seed {record.get('seed')}, data set {record.get('dataset')}) and disagree; "
            "give the models different names or report them apart"
        )


def _label(record: Record, shown: Sequence[str]) -> str:
    parts = [(field, record.get(field)) for field in shown if record.get(field) is not None]
    extras = ", ".join(f"seed {value}" if field == "seed" else str(value) for field, value in parts)
    return f"{record['model']} ({extras})" if extras else str(record["model"])


def _args_of(model: str, runs: Sequence[RunDir]) -> dict[str, Any]:
    """The arguments of the folders that measured a model, leaving out those that name another model."""
    merged: dict[str, Any] = {}
    for run in runs:
        args = run.args()
        if args.get("model") in (None, model):
            merged |= {name: value for name, value in args.items() if value is not None}
    return merged
