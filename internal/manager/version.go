package manager

import "runtime/debug"

// version is set when a release is built, with -ldflags=-X.
var version string

// Version is the release, or else what Go knows of the source this was built from.
func Version() string {
	if version != "" {
		return version
	}
	info, found := debug.ReadBuildInfo()
	if !found {
		return "unknown"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return info.Main.Version + " " + setting.Value
		}
	}
	return info.Main.Version
}
