"""operators: selection, crossover and mutation for the toolbox of `ga`, in place of its own."""

import random

from deap import tools

plugs_into = "operators"


def select(individuals, k):
    """Keep the best individual, and the winners of DEAP's tournaments of three."""
    winners = tools.selTournament(individuals, k - 1, tournsize=3)
    return tools.selBest(individuals, 1) + sorted(winners, key=lambda one: one.fitness, reverse=True)


def mate(child, other):
    """Take weights of both parents, and the geometric mean of their sigmas."""
    child.mate = other.row
    child.step = (child.step + other.step) // 2
    return child, other


def mutate(child):
    """Double or halve sigma in one of four children."""
    if random.randrange(4) == 0:
        child.step = max(-96, min(96, child.step + random.choice((-8, 8))))
    return (child,)
