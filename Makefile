PYTHON ?= .venv/bin/python
PEERS ?= .peers

.PHONY: check test test-long arm results methods pictures bench peers site lock

check: ## everything that must hold before a change lands, environment included
	.ci/run

test: ## what protects most, in minutes
	$(PYTHON) -m pytest

test-long: ## all tests, in one to two hours
	$(PYTHON) -m pytest -m ""

arm: ## an emulated ARM processor for the long tests, into build/arm; root, for Debian's packages
	.ci/arm

results: ## every published score, trained and measured again, in hours; may be interrupted
	$(PYTHON) -m benchmarks.results

methods: ## seven methods on five games, into docs/results, in hours; may be interrupted
	$(PYTHON) -m benchmarks.methods

pictures: ## those of the README, from a run of two minutes; PNGs need Chromium and the extra browser
	$(PYTHON) -m benchmarks.pictures

bench: ## ours beside others', in one run, into benchmarks/RESULTS.md; peers whose environment is there take part
	$(PYTHON) -m benchmarks --peers $(PEERS)

peers: ## the others' environments, for bench
	$(PYTHON) -m benchmarks.peers $(PEERS)

site: ## the pages of docs/ with search, into build/site
	.ci/site

compile = uv --no-config pip compile --universal --fork-strategy fewest --python-version 3.11 --generate-hashes \
	--no-header --no-annotate
lock: ## newest allowed versions, with the hashes of every file of theirs; needs uv
	$(compile) --upgrade --extra dev --output-file requirements-dev.lock pyproject.toml
	$(compile) --upgrade --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml
	echo "ray>=2.40" | $(compile) --upgrade --constraint requirements-dev.lock --output-file requirements-ray.lock -
	printf "numba-cuda>=0.30\nnvidia-cuda-nvrtc>=13\nnvidia-nvvm>=13\n" | $(compile) --upgrade --constraint requirements-dev.lock --output-file requirements-cuda.lock -
	printf "mkdocs-material>=9.6\nmkdocstrings[python]>=1\nruff>=0.11\n" | $(compile) --upgrade --output-file requirements-site.lock -
