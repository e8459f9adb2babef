import subprocess
import sys

import pytest

from hf_vitgeo.training.arguments import SupervisedArguments, parse


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
