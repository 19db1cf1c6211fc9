"""What gradient methods share: learners, losses, targets, replay buffer, schedules."""
