# Stands in for the image prom/prometheus: Debian's Prometheus with the entry point of that image.
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends prometheus wget \
 && rm -rf /var/lib/apt/lists/* \
 && install --directory --owner nobody --group nogroup /prometheus
USER 65534:65534
WORKDIR /prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
