"""What every environment must do, done by my_env: run it with pytest."""

from evo.testing import environment_tests

TestMyEnv = environment_tests("gymnasium:MyEnv-v0", plugin="my_env")
