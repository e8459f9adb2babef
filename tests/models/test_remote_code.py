"""A checkpoint carries its own code: it loads where the package is not installed."""

import os
import subprocess
import sys

import pytest
import torch
from transformers import ViTImageProcessor

from tests.conftest import ENCODINGS, FUNCTIONS

LOADER = """
import sys, torch
sys.modules["hf_vitgeo"] = None  # any import of the package fails
from transformers import AutoModel, AutoModelForImageClassification, pipeline
for folder in sys.argv[1:]:
    pictures, logits, tokens = torch.load(folder + "/expected.pt")
    model = AutoModelForImageClassification.from_pretrained(folder, trust_remote_code=True).eval()
    backbone = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(pictures).logits, logits, atol=1e-6, rtol=0)
        torch.testing.assert_close(backbone(pictures).last_hidden_state, tokens, atol=1e-6, rtol=0)
    assert "hf_vitgeo" not in type(model).__module__
    for name, buffer in model.named_buffers():
        raise AssertionError(name)
from PIL import Image
picture = Image.new("RGB", (40, 30), (200, 30, 90))
found = pipeline("image-classification", model=folder, trust_remote_code=True)(picture, top_k=2)
assert len(found) == 2 and found[0]["label"].startswith("LABEL_"), found
features = pipeline("image-feature-extraction", model=folder, trust_remote_code=True, return_tensors=True, pool=True)
assert features(picture).shape == (1, 32)
model.save_pretrained(folder + "/again")
AutoModel.from_pretrained(folder + "/again", trust_remote_code=True)
print("all right")
"""


def test_every_encoding_and_attention_loads_without_the_package(tiny_classifier, tmp_path):
    folders, pictures = [], torch.randn(2, 3, 32, 32)
    for encoding in ENCODINGS:
        for function in FUNCTIONS:
            folder = tmp_path / f"{encoding}_{function}"
            model = tiny_classifier(position_encoding=encoding, attention_probs_function=function)
            model.save_pretrained(folder)
            ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
            with torch.no_grad():
                torch.save(
                    (pictures, model(pictures).logits, model.vitgeo(pictures).last_hidden_state),
                    folder / "expected.pt",
                )
            folders.append(str(folder))
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *folders],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0 and "all right" in done.stdout, done.stderr[-3000:]


def test_a_checkpoint_of_the_backbone_names_every_class(tiny_model, tmp_path):
    import json

    tiny_model().save_pretrained(tmp_path)
    named = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert set(named) == {"AutoConfig", "AutoModel", "AutoModelForImageClassification"}
    shipped = {path.name for path in tmp_path.glob("*.py")}
    assert "conversion.py" not in shipped and "modeling_vitgeo.py" in shipped


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiles_with_inductor(tiny_classifier, encoding, function):
    model = tiny_classifier(position_encoding=encoding, attention_probs_function=function)
    pictures = torch.randn(2, 3, 32, 32)
    torch._dynamo.reset()
    found = torch.compile(model, fullgraph=True)(pictures, labels=torch.tensor([0, 1]))
    found.loss.backward()
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model(pictures).logits, atol=1e-4, rtol=1e-4)
