package manager

import "runtime/debug"

// version is set by release builds with -ldflags=-X.
var version string

// Version returns the release, or the version and revision in the build information.
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
