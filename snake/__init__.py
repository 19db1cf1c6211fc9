"""The game of Snake: rules, compiled boards, observations, Gymnasium environments, players and pictures."""
