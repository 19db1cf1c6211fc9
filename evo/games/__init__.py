"""Games, each of them one file of plain Python: `import evo.games` registers them with Gymnasium, as "evo/catch-v0"."""
