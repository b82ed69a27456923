# Stands in for the image python:*-slim: Debian's own Python under the names of that image.
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/bin/python3 /usr/local/bin/python
COPY trusted.pem /etc/ssl/trusted.pem
COPY pip.conf /etc/pip.conf
ENV PIP_CERT=/etc/ssl/trusted.pem SSL_CERT_FILE=/etc/ssl/trusted.pem
