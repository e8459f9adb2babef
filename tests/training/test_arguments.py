import subprocess
import sys

import pytest

from hf_vitgeo.recipes import RECIPES
from hf_vitgeo.training import loop_arguments
from hf_vitgeo.training.arguments import SupervisedArguments
from hf_vitgeo.training.command_line import parse
from hf_vitgeo.training.dino_arguments import DINOArguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--learning_rat", "1"], "--learning_rat"),
        (["--num_train_epochs", "0"], "--num_train_epochs is 0"),
        (["--num_train_epochs", "three"], "three"),
        (["--position_encoding", "rotary"], "rotary"),
        (["--label_smoothing", "1"], "--label_smoothing is 1.0"),
        (["--weight_decay", "-0.1"], "--weight_decay is -0.1"),
        (["--num_train_epochs", "5"], "--num_warmup_epochs is 10.0 of --num_train_epochs 5"),
        (["--cutmix_probability", "1.5"], "--cutmix_probability is 1.5"),
        (["--cutmix_probability", "0.5", "--mixup_probability", "0.5"], "mixed in one way"),
        (["--ema_decay", "1"], "--ema_decay is 1.0"),
        (["--checkpointing_steps", "often"], "--checkpointing_steps is 'often'"),
        (["--resume_from_checkpoint", "auto", "--overwrite_output_dir"], "give one of them"),
        (["--report_to", "paper"], "--report_to is 'paper'; allowed are tensorboard, trackio, wandb"),
        (["--model_name_or_path", "x", "--hidden_size", "8"], "leave out --hidden_size"),
        (["--recipe", "paper_z"], "--recipe is 'paper_z'; there are paper_b_baseline"),
        (["--config", "no/such.yaml"], "--config no/such.yaml cannot be read"),
        (["--policy", "autoaugment"], "autoaugment_cifar10"),
        (["--max_train_steps", "10", "--num_warmup_steps", "50"], "--num_warmup_steps is 50 of --max_train_steps 10"),
        (
            ["--dataset_name", "x", "--augment_on_device", "--crop", "resized"],
            "--augment_on_device has no --crop resized",
        ),
        (["--learning_rate", "inf"], "--learning_rate is inf"),
        (["--drop_path_rate", "1.5"], "--drop_path_rate is 1.5"),
        (["--hidden_size", "-3"], "--hidden_size is -3"),
        (["--position_init_std", "nan"], "--position_init_std is nan"),
        (["--resume_from_checkpoint", "no/such"], "--resume_from_checkpoint no/such is no folder"),
        (["--model_name_or_path", "x", "--preset", "tiny"], "leave out --preset"),
    ],
)
def test_wrong_words_are_refused_by_name(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(SupervisedArguments, words, "train", "train.py")
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_scenes_are_never_moved():
    scenes, others = SupervisedArguments(dataset_name="scenes"), SupervisedArguments(dataset_name="cifar10")
    assert (scenes.horizontal_flip, scenes.crop, scenes.normalization) == (False, "none", "scenes")
    assert (others.horizontal_flip, others.crop, others.normalization) == (True, "pad", "half")
    assert SupervisedArguments(dataset_name="cifar10", horizontal_flip=False).horizontal_flip is False
    for name, value in (("horizontal_flip", True), ("crop", "pad"), ("policy", "autoaugment_cifar10")):
        with pytest.raises(ValueError, match=f"--{name} is {value}.*place"):
            SupervisedArguments(dataset_name="scenes", **{name: value})


@pytest.mark.parametrize("command", ["train", "analyze", "report", "benchmark", "demo"])
def test_help_and_refusals_come_without_torch(command):
    code = (
        "import sys, hf_vitgeo.cli as c\n"
        "try: c.main(sys.argv[1:])\n"
        "except SystemExit as e: print('status', e.code)\n"
        "print('torch' in sys.modules)"
    )
    for words, status in ((["--help"], 0), (["x", "--no_such_flag", "1"], 2)):
        done = subprocess.run([sys.executable, "-c", code, command, *words], capture_output=True, text=True)
        assert f"status {status}" in done.stdout and done.stdout.rstrip().endswith("False"), done.stdout + done.stderr
    assert "no_such_flag" in done.stderr


def test_a_missing_tracker_is_refused(monkeypatch):
    monkeypatch.setitem(loop_arguments.TRACKERS, "wandb", "no_such_package")
    with pytest.raises(ValueError, match="--report_to wandb: it is not installed .pip install no_such_package"):
        SupervisedArguments(report_to=["wandb"])


def test_recipe_then_file_then_flag(tmp_path):
    flags = tmp_path / "flags.yaml"
    flags.write_text("learning_rate: 0.002\nnum_train_epochs: 50\nhorizontal_flip: false\nmixed_precision: no\n")
    words = ["--num_train_epochs", "20", "--config", str(flags), "--recipe", "paper_b_modern"]
    args = parse(SupervisedArguments, words, "train", "train.py")
    assert (args.cutmix_probability, args.label_smoothing, args.policy) == (0.5, 0.1, "autoaugment_cifar10")
    assert (args.learning_rate, args.horizontal_flip, args.num_train_epochs) == (0.002, False, 20)
    assert args.recipe == "paper_b_modern"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.yaml", "epochs: 3", "unknown keys epochs"),
        ("a.json", "[1]", "must hold names and values"),
        ("a.json", "{", "cannot be read"),
        ("a.yaml", "learning_rate: fast", "fast"),
    ],
)
def test_files_of_flags_are_checked(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(SystemExit) as ended:
        parse(SupervisedArguments, ["--config", str(tmp_path / name)], "train", "train.py")
    assert ended.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("name", list(RECIPES))
def test_recipes_are_flags_of_their_script(name):
    recipe = RECIPES[name]
    mine, other = SupervisedArguments, DINOArguments
    if recipe.script == "train_dino.py":
        mine, other = other, mine
    by_name = parse(mine, ["--recipe", name], "train", "train.py").as_dict()
    by_flags = parse(mine, recipe.command.split()[2:], "train", "train.py").as_dict()
    assert {**by_name, "recipe": None} == by_flags
    if not set(recipe.overrides) <= set(other().as_dict()):
        with pytest.raises(SystemExit):
            parse(other, ["--recipe", name], "train", "train.py")
    assert recipe.source and all(by_name[key] == value for key, value in recipe.overrides.items())


def test_the_catalogue_fills_in_what_is_known():
    args = SupervisedArguments(dataset_name="uoft-cs/cifar100")
    assert (args.image_column_name, args.label_column_name, args.eval_split) == ("img", "fine_label", "test")
    tiny = SupervisedArguments(dataset_name="zh-plus/tiny-imagenet")
    assert (tiny.image_size, tiny.patch_size, tiny.eval_split) == (64, 8, "valid")
    large = SupervisedArguments(dataset_name="clane9/imagenet-100", preset="vit_s16_paper_a")
    assert (large.image_size, large.normalization, large.eval_split) == (None, "imagenet", "validation")
    other = SupervisedArguments(dataset_name="uoft-cs/cifar100", label_column_name="coarse_label")
    assert other.label_column_name == "coarse_label"
