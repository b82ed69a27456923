# The images that the Dockerfiles begin with, under the same names, made of Debian's packages: no registry of images is needed.
# What this machine trusts and where it finds packages is passed on: certificates, and the settings of pip and uv.
# Sourced by run.sh.

release=bookworm

make_base_images() {
  [ -f "$tools/debian.tar" ] || make_root_folder
  docker import "$tools/debian.tar" "debian:$release-slim" >/dev/null
  mkdir -p "$scratch/bases"
  local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} pip_settings=/etc/pip.conf
  [ -f "$bundle" ] || bundle=/dev/null
  [ -f "$pip_settings" ] || pip_settings=/dev/null
  cp "$bundle" "$scratch/bases/trusted.pem"
  cp "$pip_settings" "$scratch/bases/pip.conf"
  {
    cat "$checks/python.Dockerfile"
    for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST UV_INDEX_URL UV_DEFAULT_INDEX; do
      [ -z "${!name:-}" ] || echo "ENV $name=${!name}"
    done
  } >"$scratch/bases/Dockerfile"
  build_base "python:3.11-slim-$release" "$scratch/bases/Dockerfile"
  build_base "prom/prometheus:v3.13.1" "$checks/prometheus.Dockerfile"
}

# build_base TAG DOCKERFILE
build_base() {
  # The builder before BuildKit is enough here, and is part of every engine and client.
  DOCKER_BUILDKIT=0 docker build "${proxies[@]}" --quiet --tag "$1" --file "$2" "$scratch/bases" >"$scratch/build.log" 2>&1 || {
    cat "$scratch/build.log" >&2
    return 1
  }
}

make_root_folder() {
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk -v release="$release" '$2 == release { print $1; exit }')
  debootstrap --variant=minbase --include=ca-certificates "$release" "$scratch/debian" ${mirror:+"$mirror"} \
    >"$scratch/debootstrap.log" || {
    tail "$scratch/debootstrap.log" >&2
    return 1
  }
  rm -rf "$scratch"/debian/var/cache/apt/archives/*.deb "$scratch"/debian/var/lib/apt/lists/*
  mkdir -p "$tools"
  tar --directory "$scratch/debian" --create --file "$tools/debian.tar.new" .
  mv "$tools/debian.tar.new" "$tools/debian.tar"
  rm -rf "$scratch/debian"
}

# Build arguments that every Dockerfile knows, and that do not stay in an image.
proxies=()
for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || proxies+=(--build-arg "$name")
done
