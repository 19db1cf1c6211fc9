"""What DQN, PQN and ERL share: action values, their loss in TensorFlow, and examples under a board's symmetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evo.errors import ConfigurationError

if TYPE_CHECKING:
    from evo.games.symmetry import Symmetry

NOT_ALLOWED = -1e30  # the value of an action that is not allowed


def check_actions(environment: Any, symmetry: bool) -> None:
    """Raise ConfigurationError where actions are continuous, or a symmetry is asked for and none is declared."""
    if environment.continuous:
        raise ConfigurationError(
            "run.algorithm: Q-learning chooses among discrete actions, and this environment's are continuous; use "
            "ppo, a2c or reinforce"
        )
    if symmetry and not environment.symmetry:
        raise ConfigurationError("symmetry: this environment declares no symmetry; use symmetry = false")


def symmetry_of(environment: Any, wanted: bool) -> Symmetry | None:
    """Return the environment's symmetry where examples are augmented by it."""
    from evo.games.symmetry import Symmetry

    return Symmetry(environment.symmetry, environment.actions) if wanted else None


def action_values(outputs: Any, actions: int, dueling: bool) -> Any:
    """Return Q = V + A - mean(A) of outputs [A..., V] (Wang et al., 2016), or the scores.  # [B, O] -> [B, A]"""
    import tensorflow as tf

    scores = outputs[:, :actions]
    if not dueling:
        return scores
    return outputs[:, actions : actions + 1] + scores - tf.reduce_mean(scores, axis=1, keepdims=True)


def huber_loss(error: Any, delta: float) -> Any:
    """Return half the squared error, linear beyond `delta` (Huber, 1964); squared everywhere with delta 0.  # [B]"""
    import tensorflow as tf

    if not delta:
        return 0.5 * tf.square(error)
    size = tf.abs(error)
    inside = tf.minimum(size, delta)
    return 0.5 * tf.square(inside) + delta * (size - inside)


def following_values(values: Any, ranks: Any, allowed: Any) -> Any:
    """Return the value of the allowed action that `ranks` puts first.  # all [B, A] -> [B]"""
    import tensorflow as tf

    ranked = tf.where(allowed != 0, ranks, tf.fill(tf.shape(ranks), NOT_ALLOWED))
    return tf.gather(values, tf.argmax(ranked, axis=1), batch_dims=1)
