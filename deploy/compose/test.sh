#!/usr/bin/env bash
# Runs the demo in containers, on a Docker daemon of its own, and measures it:
# deploy/compose/compose_test.go. It needs Linux and root, and where Docker, compose or
# Prometheus are not unpacked yet, Debian's packages and the Go module proxy.
#
# The daemon, its containers and all their traffic live in network, mount and process
# namespaces that end with this script: no address of this machine is published or
# reached but the namespace's own. No image is pulled: stand-ins for the public base
# images are made of Debian's packages, this machine's Go and the wheel's Envoy. What
# is fetched and built is kept in .tools/test-compose; make clean removes it.
#
# Exit code 0: it could run, and out/test-compose.json says what holds. 1: it could not.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
kept=$root/.tools/test-compose
unpacked=$kept/root
compose=$kept/bin/docker-compose
compose_version=v2.40.3
say() { printf 'test-compose: %s\n' "$*" >&2; }
cannot() {
	printf '\nSKIP: test-compose could not run: %s\n\n' "$*" >&2
	exit 1
}

# unpack has Docker, debootstrap and Prometheus without installing them: no service
# starts, and nothing of this machine changes.
unpack() {
	[ -e "$unpacked/.done" ] && return
	command -v apt-get >/dev/null || cannot "this system has no Debian packages, of which it makes its images"
	say "unpacking Debian's Docker, debootstrap and Prometheus into .tools/test-compose (85 MB)"
	rm -rf "$unpacked" "$kept/debs" && mkdir -p "$unpacked" "$kept/debs"
	apt-get -qq update
	(cd "$kept/debs" && apt-get -qq -o APT::Sandbox::User=root download docker.io containerd runc debootstrap prometheus)
	local deb
	for deb in "$kept"/debs/*.deb; do dpkg -x "$deb" "$unpacked"; done
	rm -rf "$kept/debs"
	touch "$unpacked/.done"
}

missing() {
	command -v iptables >/dev/null || echo iptables
	command -v ip >/dev/null || echo iproute2
	command -v wget >/dev/null || echo wget
}

install_missing() {
	local packages
	packages=$(missing | xargs)
	[ -z "$packages" ] && return
	say "installing $packages"
	# shellcheck disable=SC2086 # one word a package
	DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $packages >/dev/null
}

# build_compose builds compose, of which Debian has an old major only.
build_compose() {
	[ -x "$compose" ] && return
	say "building docker compose $compose_version (minutes, once)"
	local source
	source=$(cd /tmp && go mod download -json "github.com/docker/compose/v2@$compose_version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
	rm -rf "$kept/compose" && cp -r "$source" "$kept/compose" && chmod -R u+w "$kept/compose"
	(cd "$kept/compose" && CGO_ENABLED=0 nice -n 19 go build -trimpath -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose_version" -o "$compose" ./cmd)
	rm -rf "$kept/compose"
}

envoy_program() { find .venv/lib -path '*envoy*' -name 'envoy*' -type f -size +20M | head -1; }

# make_base is one file system for all stand-ins: Debian with what the Dockerfile asks
# of golang:…-bookworm, and Envoy and Prometheus where their images have them.
make_base() {
	local base=$kept/base envoy
	[ -e "$kept/base.tar" ] && return
	envoy=$(envoy_program)
	[ -n "$envoy" ] || cannot "there is no Envoy in .venv: run make setup"
	say "making a base for stand-ins by debootstrap (a minute or two, once)"
	rm -rf "$base"
	DEBOOTSTRAP_DIR=$unpacked/usr/share/debootstrap nice -n 19 "$unpacked/usr/sbin/debootstrap" --variant=minbase \
		--include=ca-certificates,coinor-libclp-dev,g++,gfortran,libbz2-dev,pkg-config,zlib1g-dev bookworm "$base" http://deb.debian.org/debian >"$kept/debootstrap.log" 2>&1 ||
		cannot "debootstrap failed, see $kept/debootstrap.log"
	cp -r "$(go env GOROOT)" "$base/usr/local/go"
	cp "$envoy" "$base/usr/local/bin/envoy"
	cp "$unpacked/usr/bin/prometheus" "$base/bin/prometheus"
	rm -rf "$base"/var/cache/apt/* "$base"/var/lib/apt/lists/*
	tar -C "$base" -cf "$kept/base.tar.part" . && mv "$kept/base.tar.part" "$kept/base.tar"
	rm -rf "$base"
}

# outside prepares all that needs the network, and then enters namespaces without.
outside() {
	[ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || cannot "it needs Linux and root"
	unshare --net --mount --pid --fork true 2>/dev/null || cannot "this machine allows no namespaces"
	mkdir -p "$kept/bin" out
	unpack
	install_missing
	build_compose
	make_base
	go mod download
	go test -c -o "$kept/compose.test" ./deploy/compose
	local code=0
	GOMODCACHE=$(go env GOMODCACHE) unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" inside || code=$?
	# Processes and mounts ended with the namespaces; control groups are everybody's.
	find /sys/fs/cgroup -depth -type d -path '*/weir-test-compose*' -exec rmdir {} + 2>/dev/null || true
	return $code
}

docker() { "$unpacked/usr/bin/docker" "$@"; }

start_docker() {
	ip link set lo up
	mount -t tmpfs tmpfs /run
	export PATH="$unpacked/usr/bin:$unpacked/usr/sbin:$PATH" DOCKER_HOST=unix:///run/docker.sock DOCKER_CONFIG=/run/docker-config
	# All that is built gives way to whatever else this machine does.
	nice -n 19 dockerd -H "$DOCKER_HOST" --data-root "$kept/data" --exec-root /run/docker --pidfile /run/docker.pid \
		--cgroup-parent /weir-test-compose --log-level warn >"$kept/dockerd.log" 2>&1 &
	daemon=$!
	local _
	for _ in $(seq 150); do
		docker version >/dev/null 2>&1 && return
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.2
	done
	tail -5 "$kept/dockerd.log" >&2
	cannot "the Docker daemon does not start here, see $kept/dockerd.log"
}

# stand_in NAME INSTRUCTIONS…: an image of the base that is called as a public one.
stand_in() {
	local name=$1
	shift
	printf 'FROM weir-test/base\n%s\n' "$*" | DOCKER_BUILDKIT=1 docker build -q -t "$name" - >/dev/null
}

build_images() {
	if [ "$(docker inspect -f '{{.Config.Labels.made}}' weir-test/base 2>/dev/null)" != "$(stat -c %Y "$kept/base.tar")" ]; then
		say "importing the base for stand-ins"
		docker import -c "LABEL made=$(stat -c %Y "$kept/base.tar")" "$kept/base.tar" weir-test/base >/dev/null
	fi
	stand_in weir-test/golang:0 $'ENV GOPATH=/go PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
	stand_in weir-test/envoy:0 $'ENTRYPOINT ["envoy"]'
	stand_in weir-test/prometheus:0 $'ENTRYPOINT ["/bin/prometheus"]'
	# The module cache of this machine is the proxy: there is no way out of here.
	python3 -m http.server --bind 127.0.0.1 --directory "$GOMODCACHE/cache/download" 3999 >/dev/null 2>&1 &
	local target
	for target in weir weir-extproc mock-engine mock-clients; do
		say "building weir/$target"
		DOCKER_BUILDKIT=1 docker build --progress plain --network host -f deploy/compose/Dockerfile --target "$target" -t "weir/$target:test" \
			--build-arg GO_IMAGE=weir-test/golang:0 --build-arg GOPROXY=http://127.0.0.1:3999 \
			--build-arg REVISION="$(git rev-parse --short HEAD)" . >"$kept/build.log" 2>&1 || {
			tail -30 "$kept/build.log" >&2
			cannot "the image does not build"
		}
	done
	kill %%
}

# inside runs where nothing is but itself.
inside() {
	start_docker
	build_images
	renice -n 0 -p "$daemon" $(pgrep -P "$daemon") >/dev/null # containers take after it
	local code=0
	(cd deploy/compose && WEIR_COMPOSE=$compose WEIR_FIGURES=$root/out/test-compose.json \
		"$kept/compose.test" -test.run '^TestCompose$' -test.v -test.timeout 15m) || code=1
	kill "$daemon" && wait "$daemon" || true
	return $code
}

case ${1:-} in
inside) inside ;;
*) outside ;;
esac
