// Package version returns the release of the programs.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is set by release builds with -ldflags=-X.
var release string

const unknown = "unknown"

// Version returns the release, or the version of the module if the build set none.
func Version() string {
	if release != "" {
		return release
	}
	if info, found := debug.ReadBuildInfo(); found && info.Main.Version != "" {
		return info.Main.Version
	}
	return unknown
}

// Revision returns the commit that the program was built from, or unknown.
func Revision() string {
	if info, found := debug.ReadBuildInfo(); found {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return unknown
}

// Describe returns what the version commands print: the program, its release and commit, and the Go release and
// platform that it was built with.
func Describe(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)", program, Version(), Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
