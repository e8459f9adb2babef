"""The README is true: its Python runs, its commands run as written, its tree names every module."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.S)


@pytest.mark.parametrize("code", blocks("python"), ids=range(len(blocks("python"))))
def test_python_runs(code):
    exec(compile(code, "README.md", "exec"), {})


def test_the_tree_names_every_module():
    for path in (ROOT / "hf_vitgeo").rglob("*.py"):
        if path.stem not in ("__init__", "version"):
            assert re.search(rf"\b{path.stem.removesuffix('_vitgeo')}\b", TEXT), path


def test_make_help_lists_what_the_readme_names():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "test-slow", "style", "quality", "benchmark"):
        assert re.search(rf"make {target}\s", done.stdout), target
    for target in re.findall(r"make ([a-z-]+)", TEXT):
        assert target == "help" or f"make {target}" in done.stdout


@pytest.mark.slow
def test_commands_run_as_written(tmp_path):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("python ")]
    assert len(commands) == 3
    for command in commands:
        words = [sys.executable, *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
    assert (tmp_path / "runs" / "rope" / "report.html").stat().st_size > 50_000
