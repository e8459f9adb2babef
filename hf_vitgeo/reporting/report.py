"""The comparison report: one page that opens in a browser and needs nothing beside itself."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from hf_vitgeo.reporting import plots
from hf_vitgeo.reporting.over_time import over_time
from hf_vitgeo.reporting.pretraining import pretraining
from hf_vitgeo.reporting.records import ArgsByModel, RecordsByModel, load_runs
from hf_vitgeo.reporting.tables import PAPER_A_SCALE, paper_comparison, probe_table, summary_table
from hf_vitgeo.reporting.verdicts import demo_checks, is_demo, verdict

_MISSING = "not recorded"
_SHAPE = {
    "hidden_size": "width {}",
    "num_hidden_layers": "{} layers",
    "num_attention_heads": "{} heads",
    "patch_size": "patches of {} px",
    "image_size": "pictures of {} px",
    "pooling": "pooling {}",
}


@dataclass(frozen=True)
class _Section:
    """A figure with what a reader needs to understand it."""

    name: str
    title: str
    explanation: str
    alt: str
    draw: Callable[[RecordsByModel, ArgsByModel, Sequence[Path]], Figure]


_SECTIONS = (
    _Section(
        "ssdt_by_depth",
        "Is spatial structure tied to the position index?",
        "SSDT is the rank correlation between how alike two patch tokens are and how near they are on the grid: 1 "
        "when nearer always means more alike, 0 when place says nothing. Paper A prints it as SSDC. On the right the "
        "patches are shuffled before the model adds positions (RPI). Only structure that comes from the position "
        "codes survives that: a curve inside the grey band is what chance gives.",
        "Two line charts of SSDT by layer, one for pictures as they are and one with shuffled patches; the numbers of "
        "the last layer are in the table above.",
        lambda records, args, runs: plots.ssdt_by_depth(records),
    ),
    _Section(
        "head_scatter",
        "How local are the attention heads?",
        "Each dot is one head. To the left it looks at near patches, to the right at far ones; low down it looks at "
        "few patches, at the top at all alike. The cross is a head that looks at every patch alike.",
        "Scatter plots, one a model, of mean attention distance against entropy for every head, coloured by layer.",
        lambda records, args, runs: plots.head_scatter(records, args),
    ),
    _Section(
        "alpha_sweep",
        "What if the position codes are turned down?",
        "At test time the codes are multiplied by α. On the left, how much index-tied structure the first block adds "
        "under shuffling; in the middle the accuracy; on the right the share of it that JPEG takes away. Where "
        "accuracy falls with α, a change of fragility is partly that.",
        "Three line charts against the scale of the position codes: gain of SSDT, accuracy, fragility under JPEG.",
        lambda records, args, runs: plots.alpha_sweep(records),
    ),
    _Section(
        "fragility",
        "What do JPEG and blur cost?",
        "Fragility is the share of the clean accuracy that a shift takes away; below 0 the shift helps. No claim "
        "about fragility is made at small scale: a model near chance has little to lose and looks robust. The "
        "diamonds correct for guessing.",
        "Bar charts of clean accuracy and of fragility under each shift, with 95 percent intervals over pictures.",
        lambda records, args, runs: plots.fragility_bars(records),
    ),
    _Section(
        "over_time",
        "How did it get there?",
        "The same pictures at several steps of training. On the left the accuracy of the whole evaluation split; in "
        "the middle paper B's minimum over all heads of the mean attention distance, low when some head looks at near "
        "patches alone; on the right the structure that is tied to the position index.",
        "Three line charts against the optimiser step: accuracy, minimum mean attention distance, SSDT under RPI.",
        lambda records, args, runs: over_time(runs),
    ),
    _Section(
        "pretraining",
        "How did pre-training go?",
        "DINO's teacher and student, by epoch, and the teacher's backbone at several steps. At the dashed line the "
        "teacher says the same of every picture, at 0 it puts all on one output: both are a collapse. k-NN asks "
        "whether pictures of one class are near each other, with 95 percent intervals over pictures; support is the "
        "share of patches that a query looks at at all, 1 for softmax.",
        "Six line charts against the optimiser step: teacher entropy, KL, k-NN accuracy, SSDT under RPI, minimum mean "
        "attention distance, attention support.",
        lambda records, args, runs: pretraining(runs),
    ),
)


def build_report(
    run_dirs: Sequence[Path], output: Path, title: str = "Spatial structure of Vision Transformers"
) -> Path:
    """Write the report of one or several runs, from their result files alone.

    Args:
        run_dirs: run folders with a results.json; one may hold several models.
        output: the page. Its figures are also written as PNG into `figures` beside it.
        title: of the page.

    Returns:
        `output`.

    Raises:
        ValueError: for a folder without results, or folders that disagree about the same measurement.
    """
    output = Path(output)
    records, args = load_runs([Path(folder) for folder in run_dirs])
    figures = []
    for section in _SECTIONS:
        try:
            figure = section.draw(records, args, run_dirs)
        except plots.NothingMeasured:
            continue
        path = plots.save_figure(figure, output.parent / "figures" / f"{section.name}.png")
        figures.append((section, base64.b64encode(path.read_bytes()).decode("ascii")))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hf_vitgeo.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html.j2").render(
        title=title,
        verdicts=[verdict(rows, label) for label, rows in records.items()],
        checks=demo_checks(records, _chance(args)) if is_demo(records) and _chance(args) else [],
        summary=summary_table(records, args),
        probes=probe_table(records),
        comparison=paper_comparison(records),
        paper_scale=PAPER_A_SCALE,
        scale=[scale_of(label, rows, args.get(label, {})) for label, rows in records.items()],
        figures=figures,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page, encoding="utf-8")
    return output


def _chance(args: ArgsByModel) -> float:
    """Accuracy of guessing, from the number of classes; 0 where no run says it."""
    classes = next((found["num_classes"] for found in args.values() if found.get("num_classes")), None)
    return 1 / classes if classes else 0.0


def scale_of(label: str, records: Sequence[Any], args: Any) -> dict[str, str]:
    """At what scale a model was trained and measured, as text; nothing is left unsaid.

    Args:
        label: the model's.
        records: its records.
        args: its arguments, possibly empty.

    Returns:
        One row of ready text.
    """
    config, environment = args.get("model_config") or {}, args.get("environment") or {}
    versions = environment.get("versions") or {}
    # Configurations of other libraries lack some of these.
    shape = ", ".join(text.format(config[name]) for name, text in _SHAPE.items() if config.get(name) is not None)
    measured = sorted({row["n_images"] for row in records if row.get("n_images")})
    data = sorted({f"{row['dataset']}/{row['split']}" for row in records if row.get("dataset")})
    return {
        "model": label,
        "architecture": shape or _MISSING,
        "trained on": f"{args.get('dataset_name', _MISSING)}, {_number(args.get('num_train_images'))} images",
        "images seen": _number(args.get("images_seen")),
        "epochs": _number(args.get("epochs")),
        "seed": str(args.get("seed", _MISSING)),
        "measured on": f"{', '.join(data) or _MISSING}; {' to '.join(_ends(measured))} images",
        "machine": f"{args.get('device', _MISSING)}, torch {versions.get('torch') or _MISSING}",
    }


def _number(value: Any) -> str:
    return _MISSING if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _ends(values: Sequence[int]) -> list[str]:
    """The smallest and the largest number, once if they are the same."""
    return [f"{value:,}" for value in dict.fromkeys((values[0], values[-1]))] if values else [_MISSING]
