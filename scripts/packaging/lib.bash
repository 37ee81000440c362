#!/bin/bash
# lib.bash: what is built and how, for the scripts that make releases, packages
# and images; they source it.

# describe_tree sets version, commit and SOURCE_DATE_EPOCH for the source in the
# current folder. The version is $1 or that of the last tag vX.Y.Z, with the
# number of commits since, and "dirty" if files differ from the commit. A copy
# of the source without its history gets all three by RELEASE_VERSION,
# RELEASE_COMMIT and SOURCE_DATE_EPOCH.
describe_tree() {
	version=${1:-${RELEASE_VERSION-}} commit=${RELEASE_COMMIT-}
	local tag=v0.0.0 since dirty="" changes
	if [ -z "$version" ] || [ -z "$commit" ] || [ -z "${SOURCE_DATE_EPOCH-}" ]; then
		commit=$(git rev-parse --short=12 HEAD) && changes=$(git status --porcelain) || return
		[ -z "$changes" ] || dirty=dirty
		if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
			since=$(git rev-list --count "$tag..HEAD") || return
		else
			tag=v0.0.0
			since=$(git rev-list --count HEAD) || return
		fi
		if [ -z "$version" ]; then
			version=${tag#v}
			[ "$since" -eq 0 ] && [ -z "$dirty" ] || version+=+$since.g${commit:0:7}${dirty:+.dirty}
		fi
		commit+=${dirty:+-dirty}
		: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
	fi
	export SOURCE_DATE_EPOCH
	version=${version#v}
	[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?(\+[0-9A-Za-z.]+)?$ ]] || {
		echo "${0##*/}: the version is X.Y.Z, X.Y.Z-alpha.N, -beta.N or -rc.N, perhaps with +more, not \"$version\"" >&2
		return 1
	}
}

# build_binary OS ARCH FILE builds the static binary that is shipped. The same Go
# release makes the same bytes, in whatever folder. describe_tree comes first.
# Package delivery speaks HTTP/1.1 only, so half a megabyte of HTTP/2 stays out.
build_binary() {
	env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-mod=readonly GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
		go build -trimpath -buildvcs=false -tags nethttpomithttp2 -o "$3" \
		-ldflags "-s -w -X github.com/oncectl/oncectl/cmd.version=$version -X github.com/oncectl/oncectl/cmd.commit=$commit" .
}

# example_files prints the examples that are shipped; their tests are not.
example_files() {
	find scripts/examples -path scripts/examples/check -prune -o -type f -print | LC_ALL=C sort
}
