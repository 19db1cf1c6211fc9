"""Episodes of a registered environment that draws pictures are shown, and a random player is their baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from evo.cli.main import main
from evo.environments.gymnasium import Options, make
from evo.errors import ConfigurationError
from evo.games import pictures
from evo.games.pictures import SIDE, side_of
from evo.randomness.streams import seeds_of_test_episodes
from evo.training.testing import baseline
from tests.helpers.calling import called

BOX = gymnasium.spaces.Box(0, 1, (1,), np.float32)


class Walk(gymnasium.Env):
    """A walk along a line of cells, drawn as one bright pixel; the reward is a step to the right."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space, action_space = BOX, gymnasium.spaces.Discrete(2)

    def __init__(
        self, render_mode: str | None = None, picture: Any = None, end: int = 8, drawn: Any = (2, 10, 3)
    ) -> None:
        self.end, self.render_mode, self.picture, self.drawn, self.place = end, render_mode, picture, drawn, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(4))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = max(0, self.place + (1 if action else -1))
        return self._seen(), float(action), self.place >= self.end, False, {}

    def render(self) -> Any:
        if self.picture is not None:
            return np.zeros(self.picture, np.uint8)
        pixels = np.zeros(self.drawn, np.uint8)
        pixels[0, self.place] = 255
        return pixels

    def _seen(self) -> Any:
        return np.array([self.place / 10], np.float32)


class Blank(Walk):
    """The same, without pictures."""

    metadata: ClassVar = {"render_modes": []}


class Growing(Walk):
    """The same, with a picture that is higher in every step."""

    def render(self) -> Any:
        self.drawn = (self.drawn[0] + 1, 10, 3)
        return super().render()


gymnasium.register("Growing-v0", Growing, max_episode_steps=12)
gymnasium.register("Blank-v0", Blank, max_episode_steps=12)
gymnasium.register("Walk-v0", Walk, max_episode_steps=12)
gymnasium.register("Flat-v0", Walk, max_episode_steps=12, kwargs={"picture": (4, 4)})
gymnasium.register("Long-v0", Walk, kwargs={"end": 10**6})


def test_every_position_of_an_episode_is_drawn_and_its_return_is_that_of_the_episode() -> None:
    environment = make(Options(id="gymnasium:Walk-v0"))
    shown, score = environment.replayed(7 << 40, [1, 0, 1, 1])
    bright = [int(np.argmax(one.pixels[0, :, 0])) for one in shown]
    assert np.diff(bright).tolist() == [1, -1, 1, 1]
    assert score == 3.0
    assert max(shown[0].rgb().shape) >= SIDE
    assert shown[-1].caption == "step 4  return 3"
    assert environment.replayed(7 << 40, [1], pictures=False)[0] == []


def test_pictures_that_are_large_enough_are_as_they_were_drawn() -> None:
    shown, _ = make(Options(id="gymnasium:Walk-v0", kwargs={"drawn": [400, 600, 3]})).replayed(7 << 40, [1])
    assert shown[0].rgb().shape == (400, 600, 3)
    assert (shown[0].rgb()[0] == 255).all(1).sum() == 1


def test_the_pictures_of_a_long_episode_are_smaller_so_that_all_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert side_of(np.zeros((400, 600, 3), np.uint8), 1001) == 600  # an episode of LunarLander is as it is drawn
    side = side_of(np.zeros((320, 480, 3), np.uint8), 20_000)
    assert 40 < side < SIDE
    assert 20_000 * side * side * 320 // 480 <= pictures.MOST_KEPT
    monkeypatch.setattr(pictures, "MOST_KEPT", 40)
    shown, score = make(Options(id="gymnasium:Walk-v0")).replayed(7 << 40, [1, 0, 1, 1])
    assert score == 3.0
    assert sum(one.pixels.shape[0] * one.pixels.shape[1] for one in shown) <= 40


@pytest.mark.filterwarnings("ignore")  # Gymnasium's own, of the picture
def test_an_environment_that_draws_nothing_or_something_else_says_so() -> None:
    blank = make(Options(id="gymnasium:Blank-v0"))
    assert not blank.visible
    assert blank.replayed(0, [1])[0] == []
    with pytest.raises(ConfigurationError, match=r"Walk\.render gave an array of uint8 \(4, 4\); it must be"):
        make(Options(id="gymnasium:Flat-v0")).replayed(0, [1])
    with pytest.raises(ConfigurationError, match=r"Growing\.render gave an array of uint8 \(4, 10, 3\) in step 1; it"):
        make(Options(id="gymnasium:Growing-v0")).replayed(0, [1])
    with pytest.raises(ConfigurationError, match=r"Walk\.render gave an array of uint8 \(2, 0, 3\); it must be"):
        make(Options(id="gymnasium:Walk-v0", kwargs={"picture": [2, 0, 3]})).replayed(0, [1])


def test_a_random_player_is_the_baseline_where_its_episodes_end() -> None:
    environment = make(Options(id="gymnasium:Walk-v0"))
    play, seeds = environment.baselines["random"], seeds_of_test_episodes(20).tolist()
    scores = [play(seed) for seed in seeds]
    assert scores == [play(seed) for seed in seeds]
    assert len(set(scores)) > 2
    found = baseline(environment, "random", 20, 0, float("inf"))
    assert found is not None
    assert found.mean == pytest.approx(np.mean(scores))
    endless = make(Options(id="gymnasium:Long-v0"))
    assert baseline(endless, "random", 20, 0, float("inf")) is None


def test_a_champion_is_filmed_and_its_report_has_replays(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "walk.toml").write_text(
        '[run]\ngenerations = 2\n[environment]\nid = "gymnasium:Walk-v0"\n[policy]\nkind = "linear"\n'
        "[ga]\npopulation = 4\nparents = 2\nelites = 1\nepisodes = 1\n[workers]\nbackend = 'serial'\n"
    )
    out, _ = called(tmp_path, "walk.toml", "--run-dir", "run")
    assert "baselines  random player" in out
    assert main(["replay", str(tmp_path / "run"), "--film", str(tmp_path / "film.gif"), "--size", "500"]) == 0
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 4
        assert film.size[0] >= 500
    assert "draws no pictures" not in (tmp_path / "run" / "report.html").read_text()
