"""The arrows of CONTRIBUTING.md, read from the code."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hf_vitgeo"
EVERYTHING = {
    *"recipes models data training metrics analysis probing reporting reproduction runs version commands".split()
}
# folder or module -> what it may import of the package beside itself
ARROWS = {
    "models": set(),
    "metrics": set(),
    "runs": set(),
    "recipes": set(),
    "version": set(),
    "cli": {"version"},
    "data": set(),
    "training": {"models", "data", "runs", "recipes"},
    "analysis": {"models", "data", "metrics", "runs"},
    "probing": {"models", "data", "runs", "analysis"},
    "reporting": {"runs"},
    "reproduction": {"recipes", "runs", "training", "reporting", "commands"},
    "commands": EVERYTHING,
    "__init__": {"version"},
}
WITHOUT_TORCH = [
    *("hf_vitgeo", "hf_vitgeo.cli", "hf_vitgeo.runs", "hf_vitgeo.recipes"),
    *("hf_vitgeo.training.arguments", "hf_vitgeo.training.command_line", "hf_vitgeo.data.catalog"),
    *("hf_vitgeo.training.loop_arguments", "hf_vitgeo.training.dino_arguments"),
    *("hf_vitgeo.commands.train_dino", "hf_vitgeo.commands.probe"),
    *("hf_vitgeo.reproduction.grid", "hf_vitgeo.reproduction.report", "hf_vitgeo.commands.reproduce"),
]
FILES = sorted(PACKAGE.rglob("*.py"))


def owner(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[0]


def imports(path):
    """Absolute names of every import anywhere in a file, relative ones resolved."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path):
    mine = owner(path)
    assert mine in ARROWS, f"{mine} has no arrows yet: add it here and to CONTRIBUTING.md"
    for name in imports(path):
        parts = name.split(".")
        if (
            parts[0] == "hf_vitgeo"
            and len(parts) > 1
            and (PACKAGE / parts[1]).with_suffix(".py").exists() | (PACKAGE / parts[1]).is_dir()
        ):
            assert parts[1] == mine or parts[1] in ARROWS[mine], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "models").glob("*.py")), ids=lambda path: path.name)
def test_what_travels_to_the_hub_is_flat_and_small(path):
    if path.name in ("__init__.py", "conversion.py"):
        return
    roots = {"torch", "transformers", "huggingface_hub", "entmax", "hf_vitgeo"}
    tree = {name.split(".")[0] for name in imports(path)}
    assert tree - set(sys.stdlib_module_names) <= roots
    assert "conversion" not in path.read_text().split('"""', 2)[2]


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_light_modules_do_not_import_torch(name):
    code = f"import sys, {name}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_modules_are_small():
    long = {str(path.relative_to(ROOT)): n for path in FILES if (n := len(path.read_text().splitlines())) > 300}

    assert not long


def test_nothing_but_commands_is_behind_the_scripts():
    for script in (ROOT / "scripts").glob("*.py"):
        assert set(imports(script)) == {f"hf_vitgeo.commands.{script.stem}", f"hf_vitgeo.commands.{script.stem}.main"}


def test_twins_in_the_metric_folders_stay_alike():
    """A metric folder goes to the Hub alone, so two of them carry the same helper; a mend must reach both."""
    import inspect

    from hf_vitgeo.metrics.mad import pure as mad
    from hf_vitgeo.metrics.ssdt import pure as ssdt

    assert inspect.getsource(mad._as_float) == inspect.getsource(ssdt._as_float)
