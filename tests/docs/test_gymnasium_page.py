"""The example of Gymnasium on the pages is one experiment, and it learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evo
from evo.config.experiment import Experiment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "gymnasium.md"]
PRICE = 0.25  # frames of validation and test over those of training; these are also learned from
LEAST = 450  # of 500; without normalised rewards it had 354


def example(page: Path) -> str:
    """Return the experiment of a page that trains CartPole."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "CartPole" in block]
    return str(text)


def test_both_pages_have_the_same_example() -> None:
    assert example(PAGES[0]) == example(PAGES[1])


@pytest.mark.long
def test_the_example_learns_and_spends_little_on_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(example(PAGES[0]))
    *_, last = evo.train(Experiment.load(file, "workers.backend=serial"), tmp_path / "run")
    assert last.metrics["test"] > LEAST
    run = evo.Run(tmp_path / "run")
    spent, test = run.store.spent, run.test
    assert test is not None
    assert spent.frames_validating + test.episodes * test.mean_length < PRICE * spent.frames
