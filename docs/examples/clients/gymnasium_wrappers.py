"""Gymnasium's own wrappers around our games: statistics, stacked frames, and a video."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gymnasium
from gymnasium.wrappers import FrameStackObservation, RecordEpisodeStatistics, RecordVideo

import evo.games  # noqa: F401


def main() -> None:
    """Play three episodes at random."""
    with tempfile.TemporaryDirectory() as folder:
        env = gymnasium.make("evo/cartpole-v0", render_mode="rgb_array")
        env = RecordVideo(env, folder, episode_trigger=lambda episode: episode == 0, disable_logger=True)
        env = RecordEpisodeStatistics(FrameStackObservation(env, 4))
        for seed in range(3):
            seen, _ = env.reset(seed=seed)
            assert seen.shape == (4, 4)
            over = False
            while not over:
                _, _, terminated, truncated, info = env.step(env.action_space.sample())
                over = terminated or truncated
            print(f"return {info['episode']['r']:g} after {info['episode']['l']} steps")
        env.close()
        assert list(Path(folder).glob("*.mp4"))


if __name__ == "__main__":
    main()
