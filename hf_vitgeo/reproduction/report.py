"""The report of a grid: claims first, then figures, then every run with its arguments. From result files, no torch."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from matplotlib.figure import Figure

from hf_vitgeo.recipes import recipe
from hf_vitgeo.reporting import grid_figures_a, grid_figures_b
from hf_vitgeo.reporting.grids import GridResults, Run, Runs, load_grid, minimum_mad, rpi_of_last_layer
from hf_vitgeo.reporting.plots import NothingMeasured, save_figure
from hf_vitgeo.reporting.records import BLUR, JPEG, first
from hf_vitgeo.reporting.tables import Row, to_markdown, with_interval
from hf_vitgeo.reporting.verdicts import short
from hf_vitgeo.reproduction.claims import claims_of, claims_table
from hf_vitgeo.reproduction.scales import SCALES
from hf_vitgeo.reproduction.statistics import Claim
from hf_vitgeo.runs import write_atomically


@dataclass(frozen=True)
class Figured:
    """A figure of a report.

    Attributes:
        name: of its file; the paper's figures keep their numbers.
        title: what it asks.
        explanation: what a reader needs to read it.
        alt: what it is, for those who do not see it.
        image: PNG in base 64.
    """

    name: str
    title: str
    explanation: str
    alt: str
    image: str = ""


_BAND = "Lines are means over seeds, bands one standard deviation; hollow marks are the paper's own points."
_Section = tuple[Figured, Callable[[Runs], Figure]]
_A: tuple[_Section, ...] = (
    (
        Figured(
            "fig_1a_untrained",
            "Figure 1a: structure before training",
            f"SSDT of an untrained model without an encoding. {_BAND}",
            "Line chart of SSDT by layer.",
        ),
        lambda runs: grid_figures_a.plain_figure(runs, ("untrained",), "Untrained, patches in their places"),
    ),
    (
        Figured(
            "fig_1b_emergence",
            "Figure 1b: structure without an encoding",
            f"SSDT of patches in their places: untrained, without an encoding, with a learned one. {_BAND}",
            "Line chart of SSDT by layer for three conditions.",
        ),
        lambda runs: grid_figures_a.plain_figure(runs, ("untrained", "none", "learned"), "Patches in their places"),
    ),
    (
        Figured(
            "fig_2_rpi",
            "Figure 2: what survives shuffled patches",
            f"SSDT under RPI: only what comes from the position codes is left. Grey is the null band. {_BAND}",
            "Two line charts of SSDT under RPI by layer: what recovers and what collapses.",
        ),
        grid_figures_a.rpi_figure,
    ),
    (
        Figured(
            "fig_3_fragility",
            "Figure 3: fragility under blur and JPEG",
            "Share of the clean accuracy that a shift takes away. Dots are seeds, bars one standard deviation.",
            "Point plots of accuracy and of fragility under two shifts by condition.",
        ),
        grid_figures_a.fragility_figure,
    ),
    (
        Figured(
            "table_1_alpha",
            "Table 1: position codes turned down",
            f"What the first block adds under RPI, JPEG fragility, and the accuracy, against alpha. {_BAND}",
            "Three line charts against the scale of the position codes.",
        ),
        grid_figures_a.alpha_figure,
    ),
    (
        Figured(
            "structure_and_fragility",
            "Does structure go with robustness?",
            "One mark a run; hollow marks are the paper's conditions.",
            "Scatter plot of JPEG fragility against SSDT under RPI.",
        ),
        grid_figures_a.structure_and_fragility,
    ),
    (
        Figured(
            "fig_c1_plain",
            "Figure C.1: all encodings, patches in their places",
            _BAND,
            "Line chart of SSDT by layer for four encodings.",
        ),
        lambda runs: grid_figures_a.plain_figure(
            runs, ("learned", "rope", "sinusoidal", "none"), "Patches in their places"
        ),
    ),
    (
        Figured(
            "fig_c2_rpt",
            "Figure C.2: trained on shuffled tokens",
            f"SSDT of RPT models, plain (filled) and under RPI (hollow, near 0). {_BAND}",
            "Line chart of SSDT by layer for models trained on shuffled tokens.",
        ),
        grid_figures_a.rpt_figure,
    ),
)
_B: tuple[_Section, ...] = (
    (
        Figured(
            "fig_1_mad_by_layer",
            "Figure 1: attention distance of every head",
            "A dot is a head of one seed, the black line the mean of a layer, the dotted one uniform attention.",
            "Two dot plots of mean attention distance by layer, baseline and modern.",
        ),
        grid_figures_b.mad_by_layer,
    ),
    (
        Figured(
            "fig_2_behavioural_space",
            "Figure 2: distance and entropy",
            "One dot a head and seed: to the left near, low down concentrated.",
            "Scatter plots of entropy against mean attention distance, one for each protocol, coloured by layer.",
        ),
        grid_figures_b.behavioural_space,
    ),
    (
        Figured(
            "fig_3_ablation",
            "Figure 3: the 2x2x2 ablation, and two controls",
            "Orange has CutMix, blue has not, green are controls. The dotted line is uniform attention.",
            "Point plots of minimum mean attention distance and accuracy for each protocol.",
        ),
        grid_figures_b.ablation,
    ),
)


def build_grid_report(root: Path) -> Path:
    """Write `report.html`, `report.md` and `figures/` into the folder of a grid.

    Args:
        root: folder with a `grid.json`.

    Returns:
        The page.

    Raises:
        ValueError: for a folder that is no grid, or one without a finished run.
    """
    root = Path(root)
    grid = load_grid(root)
    if not grid.runs:
        raise ValueError(f"{root} has no finished run yet")
    paper, scale = grid.plan["paper"], grid.plan["scale"]
    claims = claims_of(paper, grid.runs)
    figures = _figures(paper, grid.runs, root / "figures")
    done = sum(len(seeds) for seeds in grid.runs.values())
    facts: dict[str, Any] = {
        "title": f"Paper {paper} at scale {scale}",
        "scale": _scale_text(grid),
        "counted": f"{done} finished runs; seeds {', '.join(map(str, grid.plan['seeds']))}.",
        "missing": grid.missing,
    }
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hf_vitgeo.reporting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("grid.html.j2").render(
        **facts,
        claims=claims,
        claim_rows=claims_table(claims),
        figures=figures,
        again=f"python scripts/report.py {root.name}",
        cells=_cells(grid),
        runs=_runs(grid.runs),
        arguments=_arguments(grid.runs),
    )
    write_atomically(root / "report.html", page)
    write_atomically(root / "report.md", _markdown(facts, claims, figures, grid))
    return root / "report.html"


def _figures(paper: str, runs: Runs, folder: Path) -> list[Figured]:
    last = Figured(
        "over_time",
        "Emergence over time",
        "Measured while training, on one sample. Lines are means over seeds, bands one standard deviation.",
        "Three line charts against the optimiser step: accuracy, minimum mean attention distance, SSDT under RPI.",
    )
    sections = (*(_A if paper == "A" else _B), (last, lambda runs: grid_figures_b.emergence(runs, paper)))
    found = []
    for about, draw in sections:
        try:
            path = save_figure(draw(runs), folder / f"{about.name}.png")
        except NothingMeasured:
            continue
        image = base64.b64encode(path.read_bytes()).decode("ascii")
        found.append(Figured(about.name, about.title, about.explanation, about.alt, image))
    return found


def _scale_text(grid: GridResults) -> str:
    args = next(iter(next(iter(grid.runs.values())).values())).args
    trained = [run for seeds in grid.runs.values() for run in seeds.values() if run.args.get("images_seen")]
    seen = sorted({run.args["images_seen"] for run in trained})
    config, versions = args["model_config"], args["environment"]["versions"]
    data = Path(str(args["dataset_name"])).name
    ends = " to ".join(f"{number:,}" for number in dict.fromkeys((seen[0], seen[-1]))) if seen else "0"
    return (
        f"{SCALES[grid.plan['scale']].source} Data: {data}, {args['num_train_images']:,} training pictures, {ends} "
        f"seen; model: width {config['hidden_size']}, {config['num_hidden_layers']} layers, "
        f"{config['num_attention_heads']} heads, {args['parameters']:,} parameters; {args['mixed_precision']} mixed "
        f"precision on {args['device']}, torch {versions['torch']}."
    )


def _cells(grid: GridResults) -> list[Row]:
    rows = []
    for cell, seeds in grid.runs.items():
        known = recipe(f"paper_{grid.plan['paper'].lower()}_{cell}")
        seconds = [run.args["seconds"] for run in seeds.values() if run.args.get("seconds")]
        rows.append(
            {
                "cell": cell,
                "seeds": str(len(seeds)),
                "seconds of training, mean": f"{np.mean(seconds):,.0f}" if seconds else "–",
                "paper": known.paper_number or "–",
                "source": known.source,
                "command at the paper's scale": known.command,
            }
        )
    return rows


def _runs(runs: Runs) -> list[Row]:
    return [_run(cell, seed, run) for cell, seeds in runs.items() for seed, run in seeds.items()]


def _run(cell: str, seed: int, run: Run) -> Row:
    row = {
        "cell": cell,
        "seed": str(seed),
        "accuracy": with_interval(first(run.records, "accuracy")),
        "minimum MAD": short(minimum_mad(run), 3),
        "SSDT, RPI, last layer": short(rpi_of_last_layer(run), 3),
    }
    for shift, title in ((JPEG, "JPEG fragility"), (BLUR, "blur fragility")):
        row[title] = with_interval(first(run.records, "fragility", shift=shift))
    return {**row, "pictures seen": f"{run.args.get('images_seen') or 0:,}"}


def _arguments(runs: Runs) -> dict[str, str]:
    def text(args: Mapping[str, Any]) -> str:
        kept = {name: value for name, value in args.items() if name not in ("model_config", "output_dir")}
        return json.dumps(kept, indent=1)

    return {f"{cell}, seed {seed}": text(run.args) for cell, seeds in runs.items() for seed, run in seeds.items()}


def _markdown(facts: Mapping[str, Any], claims: Sequence[Claim], figures: Sequence[Figured], grid: GridResults) -> str:
    parts = [f"# {facts['title']}", facts["scale"], facts["counted"]]
    if facts["missing"]:
        parts.append(f"Not finished: {'; '.join(facts['missing'])}.")
    parts += [
        "## Claims",
        "Supported: the 95 % t interval over seeds of every number lies where the claim puts it; not supported: one "
        "lies wholly elsewhere. Differences are taken within a seed.",
        to_markdown(claims_table(claims)),
        "## Figures",
        *(f"### {each.title}\n\n{each.explanation}\n\n![{each.alt}](figures/{each.name}.png)" for each in figures),
        "## Cells",
        to_markdown(_cells(grid)),
        "## Runs",
        to_markdown(_runs(grid.runs)),
    ]
    return "\n\n".join(parts) + "\n"
