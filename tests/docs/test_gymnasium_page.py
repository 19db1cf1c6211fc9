"""The example of Gymnasium on the pages is one experiment, and it learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evo
from evo.config.experiment import Experiment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "gymnasium.md"]
LEAST = 450  # of 500; without normalised rewards it had 354


def example(page: Path) -> str:
    """Return the experiment of a page that trains CartPole."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "CartPole" in block]
    return str(text)


def test_both_pages_have_the_same_example() -> None:
    assert example(PAGES[0]) == example(PAGES[1])


@pytest.mark.long
def test_the_example_learns(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(example(PAGES[0]))
    sets = ["validation.episodes=32", "test.episodes=100", "workers.backend=serial"]
    *_, last = evo.train(Experiment.load(file, *sets), tmp_path / "run")
    assert last.metrics["test"] > LEAST
