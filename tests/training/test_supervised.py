import json

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, AutoModelForImageClassification, pipeline

from hf_vitgeo.data.sampling import EpochSampler, TrainingSamples
from hf_vitgeo.data.transforms import train_transform
from hf_vitgeo.runs import RunDir
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.supervised import ImageSplit, build_config, train


@pytest.fixture
def colours():
    """Two classes that a model tells apart at once: dark and bright pictures."""

    def make(n, seed=0):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, n)
        images = (rng.integers(0, 100, (n, 32, 32, 3)) + 150 * labels[:, None, None, None]).astype(np.uint8)
        return ImageSplit(images, labels.astype(np.int64), ("dark", "bright"))

    return make


@pytest.fixture
def arguments(tmp_path):
    def make(**changes):
        settings = {
            "output_dir": str(tmp_path / "run"),
            "preset": "tiny",
            "num_train_epochs": 3,
            "num_warmup_epochs": 0.5,
            "per_device_train_batch_size": 16,
            "dataset_name": "colours",
        }
        return SupervisedArguments(**{**settings, **changes})

    return make


def test_a_run_learns_and_writes_everything(colours, arguments):
    args, data = arguments(), colours(96)
    run = train(args, build_config(args, data.class_names), data, colours(40, seed=1))
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
    from PIL import Image

    bright = Image.fromarray(np.full((50, 40, 3), 220, np.uint8))
    assert model(**processor(bright, return_tensors="pt")).logits.argmax().item() == 1
    classify = pipeline("image-classification", model=str(run.checkpoint))
    assert classify(bright)[0]["label"] == "bright"
    features = pipeline("image-feature-extraction", model=str(run.checkpoint), return_tensors=True)
    assert features(bright).shape == (1, 65, 32)


def test_the_same_seed_gives_the_same_weights(colours, arguments, tmp_path):
    weights = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        args = arguments(
            output_dir=str(tmp_path / name), num_train_epochs=1, seed=seed, permute_tokens_in_training=True
        )
        data = colours(48)
        run = train(args, build_config(args, data.class_names), data, colours(16))
        model = AutoModelForImageClassification.from_pretrained(run.checkpoint)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_faults_are_named(colours, arguments):
    args, data = arguments(), colours(96)
    config = build_config(args, data.class_names)
    other = ImageSplit(data.images, data.labels, ("bright", "dark"))
    with pytest.raises(ValueError, match="different classes"):
        train(args, config, data, other)
    with pytest.raises(ValueError, match="10 training pictures are fewer than one batch of 16"):
        train(args, config, colours(10), data)
    with pytest.raises(FloatingPointError, match="loss of epoch 0 is nan.*--learning_rate"):
        train(arguments(learning_rate=1e30, max_grad_norm=1e30), config, data, data)


def test_an_impossible_model_is_refused_before_data_is_read(arguments):
    from hf_vitgeo.commands.train_supervised import run

    with pytest.raises(Exception, match="num_attention_heads"):
        run(arguments(num_attention_heads=5, dataset_name="no/such-data"))


def test_order_and_augmentation_depend_on_seed_epoch_and_index_alone(colours):
    data = colours(20)
    samples = TrainingSamples(data.images, data.labels, train_transform(32, (0.5,) * 3, (0.5,) * 3), seed=1)
    torch.manual_seed(7)
    first = samples[(0, 3)]["pixel_values"]
    after = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), after), "preparing a picture must leave the global generator alone"
    assert torch.equal(samples[(0, 3)]["pixel_values"], first)
    assert not torch.equal(samples[(1, 3)]["pixel_values"], first)
    sampler = EpochSampler(20, seed=1)
    zero = list(sampler)
    sampler.set_epoch(1)
    one = list(sampler)
    assert {key[0] for key in one} == {1} and sorted(i for _, i in one) == list(range(20))
    assert [i for _, i in zero] != [i for _, i in one]


def test_run_dir_is_not_made_by_reading(tmp_path):
    run = RunDir(tmp_path / "nothing")
    assert run.args() == {} and run.results() == [] and run.events() == [] and not run.path.exists()
