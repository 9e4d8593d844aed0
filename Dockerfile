# The program `napier` on Debian 12, with everything but MPI and GPUs: 112 MB beside Debian, most of it cairo.
#
#     docker build -t napier .
#     docker run --rm -i napier softmax - <logits.csv
#     docker run --rm -u "$(id -u)" -v "$PWD:/data" napier umap data.npy -o map.npy --plot map.png
#
# Anything that builds a Dockerfile will do; `buildah bud --isolation chroot` has been tried. Files are read and written in /data.
FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake gcc libc6-dev make \
    libcairo2-dev libcjson-dev libedit-dev libpcre2-dev libutf8proc-dev zlib1g-dev
COPY . /napier
RUN cmake -S /napier -B /build -DCMAKE_BUILD_TYPE=Release -DNAPIER_TESTS=OFF -DNAPIER_EXAMPLES=OFF -DNAPIER_MPI=OFF \
    && cmake --build /build --parallel "$(nproc)" && cmake --install /build --prefix /opt/napier --strip

FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libcairo2 libcjson1 libedit2 libpcre2-8-0 libutf8proc2 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/napier/bin/napier /usr/local/bin/
COPY --from=build /opt/napier/lib/ /usr/local/lib/
RUN ldconfig
USER nobody
WORKDIR /data
ENTRYPOINT ["napier"]
