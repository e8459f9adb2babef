import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline

from hf_vitgeo.data.loading import ImageSplit
from hf_vitgeo.training.building import build_model, choose_kernel


def test_a_run_learns_and_writes_everything(colours, arguments, fit):
    run = fit(arguments(), colours(96), colours(40, seed=1))
    facts = run.args()
    assert facts["eval_accuracy"] == 1.0
    assert (facts["steps"], facts["images_seen"], facts["epochs"]) == (18, 288, 3)
    assert facts["model"] == "learned" and facts["model_config"]["hidden_size"] == 32
    assert facts["environment"]["versions"]["torch"] == torch.__version__.split("+")[0]
    events = run.events()
    assert [event["epoch"] for event in events] == [0, 1, 2] and events[-1]["loss"] < events[0]["loss"]
    json.loads((run.path / "args.json").read_text())
    processor = AutoImageProcessor.from_pretrained(run.checkpoint)
    model = AutoModelForImageClassification.from_pretrained(run.checkpoint)
    assert model.config.id2label == {0: "dark", 1: "bright"}
    bright = Image.fromarray(np.full((50, 40, 3), 220, np.uint8))
    assert model(**processor(bright, return_tensors="pt")).logits.argmax().item() == 1
    classify = pipeline("image-classification", model=str(run.checkpoint))
    assert classify(bright)[0]["label"] == "bright"
    features = pipeline("image-feature-extraction", model=str(run.checkpoint), return_tensors=True)
    assert features(bright).shape == (1, 65, 32)


def test_the_same_seed_gives_the_same_weights(colours, arguments, fit, tmp_path):
    weights = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        settings = {"num_train_epochs": 1, "seed": seed, "permute_tokens_in_training": True}
        run = fit(arguments(output_dir=str(tmp_path / name), **settings), colours(48), colours(16))
        model = AutoModelForImageClassification.from_pretrained(run.checkpoint)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_faults_are_named(colours, arguments, fit):
    data = colours(96)
    with pytest.raises(ValueError, match="different classes"):
        fit(arguments(), data, ImageSplit(data.source, ("bright", "dark")))
    with pytest.raises(ValueError, match="10 training pictures are fewer than one batch of 16"):
        fit(arguments(), colours(10), data)


def test_an_impossible_model_is_refused_before_data_is_read(arguments):
    from hf_vitgeo.commands.train_supervised import run

    with pytest.raises(BaseException, match="num_attention_heads"):
        run(arguments(num_attention_heads=5, dataset_name="no/such-data"))


def test_no_step_saves_the_untrained_model(colours, arguments, fit):
    args = arguments(max_train_steps=0)
    run = fit(args, colours(48), colours(16))
    fresh = build_model(args, ("dark", "bright")).state_dict()
    saved = AutoModelForImageClassification.from_pretrained(run.checkpoint).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in saved.items())
    assert run.args()["steps"] == 0 and run.args()["eval_accuracy"] is None and run.events() == []


@pytest.mark.parametrize(
    ("flags", "device", "kernel"),
    [
        ({}, "cpu", "sdpa"),
        ({"mixed_precision": "bf16"}, "cpu", "eager"),  # its backward pass in sdpa is slow there
        ({"mixed_precision": "bf16"}, "cuda", "sdpa"),
        ({"mixed_precision": "bf16", "attn_implementation": "sdpa"}, "cpu", "sdpa"),
        ({"attn_implementation": "eager"}, "cuda", "eager"),
    ],
)
def test_the_kernel_is_the_flag_or_the_fast_one(arguments, flags, device, kernel):
    args = arguments(**flags)
    model = build_model(args, ("dark", "bright"))
    choose_kernel(args, model, device)
    assert model.config._attn_implementation == kernel


def test_a_kernel_that_entmax_does_not_have_is_refused(arguments):
    args = arguments(attn_implementation="sdpa", attention_probs_function="entmax15")
    with pytest.raises(ValueError, match="sdpa"):
        choose_kernel(args, build_model(args, ("dark", "bright")), "cpu")


@pytest.mark.slow
def test_a_compiled_run_resumes_and_saves_the_model_s_own_names(colours, arguments, fit):
    settings = {"torch_compile": True, "num_train_epochs": 1, "checkpointing_steps": "2"}
    run = fit(arguments(**settings), colours(96), colours(40))
    names = AutoModelForImageClassification.from_pretrained(run.checkpoint).state_dict()
    assert not any("_orig_mod" in name for name in names)
    before = {name: value.clone() for name, value in names.items()}
    fit(arguments(**settings, resume_from_checkpoint=str(run.path / "checkpoints/step_4")), colours(96), colours(40))
    after = AutoModelForImageClassification.from_pretrained(run.checkpoint).state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_trackers_get_loss_rate_and_accuracy(colours, arguments, fit):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = fit(arguments(report_to=["tensorboard"]), colours(96), colours(40))
    read = EventAccumulator(str(run.path / "trackers" / "hf_vitgeo"))
    read.Reload()
    assert {"loss", "learning_rate", "accuracy"} <= set(read.Tags()["scalars"])
    assert [event.step for event in read.Scalars("accuracy")] == [6, 12, 18]
