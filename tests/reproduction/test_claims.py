"""Verdicts: intervals equal scipy's, and result files whose right verdict is known are judged so."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hf_vitgeo.reporting.grids import load_grid
from hf_vitgeo.reporting.records import BLUR, JPEG
from hf_vitgeo.reproduction.claims import claims_of, claims_table
from hf_vitgeo.reproduction.claims_b import effect
from hf_vitgeo.reproduction.quantities import difference
from hf_vitgeo.reproduction.scales import CELLS
from hf_vitgeo.reproduction.statistics import NOT_SUPPORTED, SUPPORTED, UNDECIDED, Claim, Condition, t_interval

ROOT = Path(__file__).parents[2]
FLAT = (0.0,) * 12


def judged(root):
    grid = load_grid(root)
    return {claim.name: claim for claim in claims_of(grid.plan["paper"], grid.runs)}


def verdicts(root):
    return {name: claim.verdict for name, claim in judged(root).items()}


def test_interval_is_scipys():
    values = np.array([0.3, 0.5, 0.45, 0.1])
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert t_interval(values) == pytest.approx(expected)
    assert t_interval(values[:1]) is None


@pytest.mark.parametrize(
    ("values", "relation", "bound", "verdict"),
    [
        ((0.5, 0.51, 0.49), "above", 0.1, SUPPORTED),
        ((0.5, 0.51, 0.49), "below", 0.1, NOT_SUPPORTED),
        ((0.5, 0.51, 0.49), "below", 0.9, SUPPORTED),
        ((0.5, 0.1, -0.3), "above", 0, UNDECIDED),
        ((0.01, -0.01, 0.0), "within", 0.05, SUPPORTED),
        ((0.2, 0.21, 0.2), "within", 0.05, NOT_SUPPORTED),
        ((-0.2, -0.21, -0.2), "within", 0.05, NOT_SUPPORTED),
        ((0.04, 0.06, 0.05), "within", 0.05, UNDECIDED),
        # two seeds never decide, however far apart from the bound; nor does a value that was not measured count
        ((0.5, 0.5), "above", 0.1, UNDECIDED),
        ((0.5, 0.5, math.nan), "above", 0.1, UNDECIDED),
        ((), "above", 0.1, UNDECIDED),
    ],
)
def test_a_condition(values, relation, bound, verdict):
    assert Condition("x", dict(enumerate(values)), relation, bound).verdict == verdict


def test_a_claim_needs_all_of_its_conditions():
    yes = Condition("yes", {0: 0.5, 1: 0.51, 2: 0.52}, "above", 0)
    no = Condition("no", {0: 0.5, 1: 0.51, 2: 0.52}, "below", 0)
    open_ = Condition("open", {0: 0.5, 1: 0.0, 2: -0.5}, "below", 0)
    assert Claim("", "", [yes]).verdict == SUPPORTED
    assert Claim("", "", [yes, no, open_]).verdict == NOT_SUPPORTED
    assert Claim("", "", [yes, no, open_]).reason == "no"
    assert Claim("", "", [yes, open_]).verdict == UNDECIDED
    assert Claim("", "", [yes, open_]).reason == "open"
    assert Claim("", "", [yes], ["rope"]).verdict == UNDECIDED
    assert "rope" in Claim("", "", [yes], ["rope"]).reason


@pytest.mark.parametrize("paper", ["A", "B"])
def test_the_papers_own_numbers_support_its_claims(paper, write_grid):
    assert set(verdicts(write_grid(paper, CELLS[paper])).values()) == {SUPPORTED}


@pytest.mark.parametrize("paper", ["A", "B"])
def test_two_seeds_decide_nothing(paper, write_grid):
    found = judged(write_grid(paper, CELLS[paper], seeds=(0, 1)))
    assert {claim.verdict for claim in found.values()} == {UNDECIDED}
    assert all("2 of the 3 seeds" in claim.reason for claim in found.values())


@pytest.mark.parametrize("paper", ["A", "B"])
def test_noise_decides_nothing_about_differences(paper, write_grid):
    found = verdicts(write_grid(paper, CELLS[paper], noise=2.0))
    different = {
        "A": ("order of JPEG fragility", "RPT is like none"),
        "B": ("CutMix separates", "both raise accuracy"),
    }
    assert {found[name] for name in different[paper]} <= {UNDECIDED, NOT_SUPPORTED}
    assert UNDECIDED in found.values()


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("structure without an encoding", {"none": {"plain": FLAT}}),
        ("none collapses", {"none": {"rpi": (0.0, 0.3, *FLAT[2:])}}),
        ("encodings recover", {"rope": {"rpi": FLAT}}),
        ("early or gradual", {"rope": {"rpi": (0.0, *(0.3,) * 11)}}),
        ("RPT is like none", {"learned_rpt": {"rpi": (0.3,) * 12}}),
        ("RPT is like none", {"learned_rpt": {JPEG: 0.2}}),
        ("order of JPEG fragility", {"rope": {JPEG: 0.9}}),
        ("order of blur fragility", {"none": {BLUR: 0.0}}),
        ("three regimes of alpha", {"learned": {"alpha": {tenth / 10: (0.3, 0.5) for tenth in range(1, 11)}}}),
        ("structure goes with robustness", {"rope": {JPEG: 0.9}, "sinusoidal": {JPEG: 0.95}, "learned": {JPEG: 0.9}}),
    ],
)
def test_a_claim_of_paper_a_can_be_refuted(claim, changes, write_grid):
    assert verdicts(write_grid("A", CELLS["A"], changes=changes))[claim] == NOT_SUPPORTED


LOCAL, FAR = np.linspace(0.02, 0.4, 12), np.linspace(0.31, 0.4, 12)


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("modern is more local", {"modern": {"mad": FAR + 0.05}}),
        ("CutMix separates", {"cutmix": {"mad": FAR + 0.05}}),
        ("it is the region of another class", {"cutout": {"mad": LOCAL}}),
        ("it is the region of another class", {"mixup": {"mad": LOCAL}}),
        ("no effect of the others", {name: {"mad": LOCAL} for name in ("autoaugment", "no_cutmix")}),
        ("both raise accuracy", {"cutmix": {"accuracy": 0.5}}),
        ("local first, global later", {"modern": {"entropy": np.linspace(0.9, 0.2, 12)}}),
        ("accuracy without locality", {"autoaugment": {"mad": LOCAL}}),
    ],
)
def test_a_claim_of_paper_b_can_be_refuted(claim, changes, write_grid):
    assert verdicts(write_grid("B", CELLS["B"], changes=changes))[claim] == NOT_SUPPORTED


def test_what_was_not_run_is_named(write_grid):
    found = judged(write_grid("A", ("untrained", "none")))
    assert found["none collapses"].verdict == SUPPORTED
    assert found["encodings recover"].verdict == UNDECIDED
    assert found["encodings recover"].reason == "no run of learned, sinusoidal, rope"


def test_effects_are_contrasts_of_the_design(write_grid):
    """A number made of known effects gives them back: 2 for CutMix, -1 for both at once, 0 for the rest."""
    runs = load_grid(write_grid("B", CELLS["B"], seeds=(0,))).runs
    names = {id(seeds[0]): cell for cell, seeds in runs.items()}
    has_cutmix = ("cutmix", "no_autoaugment", "no_label_smoothing", "modern")
    has_policy = ("autoaugment", "no_cutmix", "no_label_smoothing", "modern")

    def number(run):
        cutmix, policy = names[id(run)] in has_cutmix, names[id(run)] in has_policy
        return 7 + 2 * cutmix - 2 * cutmix * policy

    assert effect(runs, frozenset({"label_smoothing"}), number) == {0: 0}
    # with the policy CutMix has no effect, without it 2
    assert effect(runs, frozenset({"cutmix"}), number) == {0: 1}
    assert effect(runs, frozenset({"cutmix", "autoaugment"}), number) == {0: -1}


def test_differences_are_paired(write_grid):
    """Seeds that lie far apart still decide a difference that is the same in each of them."""
    runs = load_grid(write_grid("B", ("baseline", "modern"), seeds=(0, 1, 2))).runs
    seed = {id(run): number for cell in runs.values() for number, run in cell.items()}
    modern = {id(run) for run in runs["modern"].values()}
    found = difference(runs, "modern", "baseline", lambda run: 10 * seed[id(run)] - 0.1 * (id(run) in modern))
    assert Condition("x", found, "below", 0).verdict == SUPPORTED
    assert found == pytest.approx(dict.fromkeys(range(3), -0.1))


def test_the_table_has_what_decided(write_grid):
    grid = load_grid(write_grid("A", CELLS["A"], noise=0, changes={"none": {"rpi": (0.3,) * 12}}))
    claims = claims_of("A", grid.runs)
    rows = claims_table(claims)
    assert len(rows) == sum(len(claim.conditions) for claim in claims)
    row = next(row for row in rows if row["claim"].startswith("none collapses"))
    assert row["verdict"].startswith("not supported") and row["ours"] == ".300" and row["claimed"] == "below .05"
    assert row["seeds"] == "3"


def test_the_report_is_rebuilt_without_torch(write_grid):
    root = write_grid("A", CELLS["A"])
    code = f"""
import sys
from hf_vitgeo.reproduction.report import build_grid_report
build_grid_report({str(root)!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)
    page, text = (root / "report.html").read_text(), (root / "report.md").read_text()
    assert page.index("Claims") < page.index("Figure 1a") < page.index("Runs")
    for claim in judged(root).values():
        assert claim.name in page and claim.name in text
    drawn = {path.stem for path in (root / "figures").glob("*.png")}
    assert {"fig_1a_untrained", "fig_2_rpi", "fig_3_fragility", "table_1_alpha", "structure_and_fragility"} <= drawn
    assert all(f"figures/{name}.png" in text for name in drawn)
    assert str(root.parent) not in text


def test_a_record_outside_the_schema_is_named(write_grid):
    root = write_grid("A", ("none",), seeds=(0,))
    file = root / "none/seed_0/results.json"
    file.write_text(file.read_text().replace('"metric": "accuracy"', '"metrik": "accuracy"', 1))
    with pytest.raises(ValueError, match=r"none/seed_0.*metrik"):
        load_grid(root)


def test_a_folder_that_is_no_grid_is_refused(tmp_path):
    with pytest.raises(ValueError, match="grid.json"):
        load_grid(tmp_path)
