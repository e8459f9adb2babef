import base64
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from hf_vitgeo.reporting.records import load_runs
from hf_vitgeo.reporting.report import build_report
from hf_vitgeo.reporting.tables import paper_comparison, summary_table, to_markdown, to_text
from hf_vitgeo.reporting.verdicts import demo_checks, short, verdict
from hf_vitgeo.runs import RunDir
from tests.reporting.conftest import synthetic, write_run


class Page(HTMLParser):
    """Collects what a page fetches, its pictures and whether its tags close."""

    VOID = {"meta", "img", "br", "hr", "link", "input"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.pictures, self.links, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img":
            self.pictures.append(found)
        self.links += [found[name] for name in ("src", "href") if name in found]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    ("mean", "sd", "label"),
    [
        (0.08, 0.079, "index-anchored"),  # 4 s.e. are .079
        (0.0799, 0.01, "undecided"),
        (0.08, 0.0801, "undecided"),
        (0.0499, 0.01, "not index-anchored"),
        (0.05, 0.01, "undecided"),
        (-0.06, 0.01, "undecided"),
        (-0.06, 0.09, "not index-anchored"),  # 3 s.e. are .0675
    ],
)
def test_the_rule_of_the_verdict(mean, sd, label):
    assert verdict(synthetic("rope", 0.5, mean, sd=sd)).label == label


def test_the_verdict_is_a_line_that_a_person_understands():
    found = verdict(synthetic("rope", 0.5, 0.21))
    assert found.text == "rope: index-anchored, SSDT under RPI .21 ± .03 (null ± .04)"
    assert short(-0.004) == ".00" and short(-0.21) == "-.21" and short(1.0) == "1.00" and short(None) == "–"
    assert verdict([{"metric": "accuracy", "model": "x", "value": 1.0}]).label == "undecided"


def test_the_checks_of_the_demo(five):
    records, _ = load_runs(five)
    assert [check.holds for check in demo_checks(records, chance=0.1)] == [True, True, True]
    assert [check.holds for check in demo_checks(records, chance=0.13)] == [False, True, True]
    records["rope"] = synthetic("rope", 0.6, 0.02)
    records["none"] = synthetic("none", 0.4, 0.3)
    checks = demo_checks(records, chance=0.1)
    assert [check.holds for check in checks] == [True, False, False]
    assert "rope: not index-anchored" in checks[1].detail
    del records["rope"]
    assert "rope: no records" in demo_checks(records, chance=0.1)[1].detail


def test_tables(five):
    records, args = load_runs(five)
    rows = summary_table(records, args)
    assert rows[3]["model"] == "rope" and rows[3]["SSDT, RPI"] == ".21 ± .03" and rows[3]["parameters"] == "1,234"
    assert rows[3]["accuracy"] == ".60 [.57, .63]" and rows[3]["min MAD"] == ".300"
    text = to_text(rows)
    assert max(map(len, text.splitlines())) <= 100 and text.count("learned+rpt") == 2
    assert to_markdown([{"a|b": "1"}]) == "| a\\|b |\n| --- |\n| 1 |"
    compared = {row["model"]: row for row in paper_comparison(records)}
    assert compared["rope"]["accuracy (paper)"] == ".69" and compared["rope"]["accuracy"] == ".60"
    assert to_text([]) == to_markdown([]) == ""


def test_the_page_needs_nothing_beside_itself(five, tmp_path):
    output = build_report(five, tmp_path / "out" / "report.html", title="Five ViTs")
    page = Page(output.read_text(encoding="utf-8"))
    assert len(page.pictures) == 4 and all(picture["alt"] for picture in page.pictures)
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    for picture in page.pictures:
        assert base64.b64decode(picture["src"].split(",")[1]).startswith(b"\x89PNG")
    for words in ("SSDC", "No claim about fragility", "rope: index-anchored", "width 64", "1,000", "ImageNet-100"):
        assert words in page.text, words
    assert page.text.count("Holds:") == 3
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert names == {"ssdt_by_depth.png", "head_scatter.png", "alpha_sweep.png", "fragility.png"}


def test_what_was_not_measured_leaves_its_section_out(tmp_path):
    run = RunDir(tmp_path / "one")
    run.append_results([row for row in synthetic("mine", 0.5, 0.2) if row["metric"] == "ssdt"])
    page = Page(build_report([run.path], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(page.pictures) == 1 and "not recorded" in page.text and "Beside the paper" not in page.text


def test_only_accuracy_draws_nothing(tmp_path):
    run = RunDir(tmp_path / "one")
    run.append_results([row for row in synthetic("mine", 0.5, 0.2) if row["metric"] == "accuracy"])
    page = Page(build_report([run.path], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not page.pictures and "SSDT under RPI was not measured" in page.text


def test_a_fault_of_a_figure_is_not_taken_for_a_missing_measurement(five, tmp_path, monkeypatch):
    def broken(axes, records):
        raise ValueError("broken figure")

    monkeypatch.setattr("hf_vitgeo.reporting.plots._draw_null", broken)
    with pytest.raises(ValueError, match="broken figure"):
        build_report(five, tmp_path / "report.html")


def test_arguments_may_lack_anything(five, tmp_path):
    run = RunDir(five[0])  # the first: the number of classes is then found in another run
    run.write_args({"model": "none", "model_config": {"hidden_size": 64, "num_hidden_layers": 2}})
    page = Page(build_report(five, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "width 64, 2 layers" in page.text and "not recorded" in page.text
    assert page.text.count("Holds:") == 3


def test_values_that_are_undefined_are_drawn_as_gaps(tmp_path):
    run = RunDir(tmp_path / "one")
    nothing = {"value": None, "spread": None, "reason": "undefined here"}
    run.append_results([row | nothing for row in synthetic("mine", 0.5, 0.2, sweep=True)])
    page = Page(build_report([run.path], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(page.pictures) == 3 and "SSDT under RPI has no value (undefined here)" in page.text


def test_hostile_names_are_text(tmp_path):
    name = "<script>alert(1)</script>$x$"
    run = write_run(tmp_path / "run", name, 0.5, 0.2)
    text = build_report([run], tmp_path / "report.html", title="<b>&").read_text(encoding="utf-8")
    assert "<script>" not in text and "&lt;script&gt;" in text and "<b>&" not in text


def test_seeds_of_one_model_stand_apart(tmp_path):
    runs = [write_run(tmp_path / str(seed), "rope", 0.5, 0.2, seed=seed) for seed in (0, 1)]
    records, _ = load_runs(runs)
    assert list(records) == ["rope (seed 0)", "rope (seed 1)"]


def test_faults_are_named(tmp_path):
    with pytest.raises(ValueError, match="nothing.*results.json"):
        build_report([tmp_path / "nothing"], tmp_path / "report.html")
    a, b = (write_run(tmp_path / name, "rope", 0.5, rpi) for name, rpi in (("a", 0.2), ("b", 0.3)))
    with pytest.raises(ValueError, match="both measured.*'rope'"):
        build_report([a, b], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_report_is_made_without_torch(five, tmp_path):
    code = (
        "import sys\nfrom hf_vitgeo.commands.report import main\nmain(sys.argv[1:])\n"
        "print([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules])"
    )
    output = str(tmp_path / "r.html")
    words = [sys.executable, "-c", code, *map(str, five), "--output", output]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"report: {output}", "[]"]
    words = [sys.executable, "-c", code, str(tmp_path / "nothing")]
    failed = subprocess.run(words, capture_output=True, text=True)
    assert failed.returncode == 2 and "nothing has no results.json" in failed.stderr
