// Package version returns the release of the programs.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
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

// LabelName is the label of the operator's Lease with the version of the replica that leads.
const LabelName = "app.kubernetes.io/version"

// Label returns the version as the value of a label: characters that labels cannot have are replaced.
func Label() string {
	value := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, Version())
	return strings.Trim(value[:min(len(value), 63)], "-._")
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
