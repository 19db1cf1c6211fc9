# The program with what a run needs, for CPUs: docker build -t snake-evo . && docker run --rm -v "$PWD/runs:/work/runs" snake-evo run experiments/ga_snake_6x6.toml
FROM python:3.12-slim
COPY requirements.lock /app/
RUN python -m pip install --no-cache-dir -r /app/requirements.lock
COPY pyproject.toml README.md LICENSE /app/
COPY evo /app/evo
COPY snake /app/snake
COPY experiments /app/experiments
COPY champions /app/champions
RUN useradd --create-home evo && mkdir -p /work/runs && ln -s /app/experiments /app/champions /work/ && chown -R evo /work
ENV PYTHONPATH=/app NUMBA_CACHE_DIR=/home/evo/.cache/numba
USER evo
WORKDIR /work
ENTRYPOINT ["python", "-m", "evo"]
