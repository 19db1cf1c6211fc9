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
    child.log_sigma = (child.log_sigma + other.log_sigma) / 2
    return child, other


def mutate(child):
    """Double or halve sigma in one of four children."""
    if random.randrange(4) == 0:
        child.log_sigma = max(-20.0, min(5.0, child.log_sigma + random.choice((-0.7, 0.7))))
    return (child,)
