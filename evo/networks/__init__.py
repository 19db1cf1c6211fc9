"""Network descriptions, candidates' weights, Keras models, transfer of weights."""
