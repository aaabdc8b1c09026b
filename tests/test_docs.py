"""The code and the commands in the documents run as they stand."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
import torch
import typer
from typer._click.exceptions import UsageError  # typer carries its own click
from typer.core import TyperGroup

from gatelab.cli import app
from gatelab.papers import find_experiment

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if not {"generated", "_build"} & set(path.parts)),
]
SLOW = {"docs/hierarchy.md", "docs/kernels-at-scale.md"}  # pages that take more than a few seconds


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def setup(path: Path) -> str:
    """Code that a page needs and does not show, in a comment of HTML."""
    return "\n".join(re.findall(r"<!-- run first\n(.*?)-->", path.read_text(encoding="utf-8"), flags=re.DOTALL))


PROGRAMS = [
    pytest.param(path, id=name(path), marks=pytest.mark.slow if name(path) in SLOW else ())
    for path in TEXTS
    if blocks(path, "python")
]


@pytest.mark.parametrize("path", PROGRAMS)
def test_the_page_runs(path, tmp_path, monkeypatch, capsys):
    """The blocks of Python of a page follow one another as one program; a block of text is what they print."""
    torch.set_default_dtype(torch.float32)  # as a reader runs it
    monkeypatch.chdir(tmp_path)  # whatever it may write
    program = "\n".join(blocks(path, "python"))
    if ">>>" in program:
        run_dialogue(program, name(path))
    else:
        exec(compile(setup(path) + program, name(path), "exec"), {"__name__": name(path)})
        printed = " ".join(capsys.readouterr().out.split())
        assert all(" ".join(block.split()) in printed for block in blocks(path, "text"))


def run_dialogue(program: str, page: str) -> None:
    """Run what stands behind >>> and compare what it says."""
    example = doctest.DocTestParser().get_doctest(program, {}, page, page, 0)
    told: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=flags).run(example, out=told.append)
    assert result.attempted == program.count(">>>") > 0
    assert result.failed == 0, "".join(told)


def commands(path: Path) -> list[str]:
    """The command lines of gatelab in a page, in blocks and in the text."""
    text = path.read_text(encoding="utf-8")
    typed = "\n".join(blocks(path, "sh")).replace("\\\n", " ")
    lines = [re.split(r"\s#", line)[0] for line in typed.splitlines()]
    lines += [" ".join(inline.split()) for inline in re.findall(r"`(gatelab [^`]+)`", text)]
    return [line.strip() for line in lines if line.strip().startswith("gatelab ")]


LINES = sorted({(name(path), line) for path in TEXTS for line in commands(path)})
# What stands in a pattern of command lines, and in no line that one would type.
PLACEHOLDERS = re.compile(r"[…\[\]|<>]|\b(ID|DIR|NAME|MODEL|DATA|FILE|COMMAND|ERROR)\b|\.\.\.")


def parse(words: list[str]) -> None:
    """Read a command line as the command would, and run nothing."""
    command, path = typer.main.get_command(app), "gatelab"
    while isinstance(command, TyperGroup):
        if not words:
            return
        assert words[0] in command.commands, f"{path}: no command '{words[0]}'"
        path, command, words = f"{path} {words[0]}", command.commands[words[0]], words[1:]
    if words or any(parameter.required for parameter in command.params):
        command.make_context(path, list(words))


def test_there_are_command_lines_to_read():
    assert len(LINES) > 40


@pytest.mark.parametrize("line", sorted({line for _, line in LINES}))
def test_the_command_line_is_one(line):
    words = shlex.split(line)[1:]
    if PLACEHOLDERS.search(line):
        words = words[:1]
    if words == ["kernel"] or (len(words) == 1 and not words[0].startswith("-")):
        assert words[0] in typer.main.get_command(app).commands, f"no command '{words[0]}'"  # its name alone
    elif words and not words[0].startswith("-"):
        parse(words)


@pytest.mark.parametrize("line", ["kernel net.py:Net mnist --knd npk", "sudy", "run npk-table2 --profile"])
def test_a_wrong_command_line_is_found(line):
    with pytest.raises((AssertionError, UsageError)):
        parse(shlex.split(line))


SETTINGS = sorted({line for _, line in LINES if line.startswith("gatelab run ") and not PLACEHOLDERS.search(line)})


@pytest.mark.parametrize("line", SETTINGS)
def test_the_experiment_and_its_settings_exist(line):
    words = shlex.split(line)[2:]
    experiment = find_experiment(words[0])
    values = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set")
    assert set(values) <= set(experiment.config.model_fields), line


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_targets_of_make_exist(path):
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    asked = re.findall(
        r"`make ([a-z-]+)|^make ([a-z-]+)(?= *(?:#|$))", path.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert {target for pair in asked for target in pair if target} <= set(made)
