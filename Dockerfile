# Debian 12 with all that building, testing and using vedette takes. Written from what scripts/setup.sh does on that
# system; the file itself was never tried, for want of a machine with Docker.
#
#   docker build -t vedette . && docker run --rm -it --security-opt seccomp=unconfined vedette scripts/demo.sh
#
# seccomp=unconfined allows userfaultfd and io_uring, without which chunks move in slower ways (docs/environments.md).
FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends git ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /vedette
COPY scripts/setup.sh scripts/setup.sh
RUN scripts/setup.sh --tests
COPY . .
RUN cmake --preset release -DVEDETTE_UNITY=ON && cmake --build --preset release --target train vedette_cli vedette_python
