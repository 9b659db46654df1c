package version

import (
	"runtime"
	"strings"
	"testing"
)

func TestDescribeNamesReleaseCommitAndPlatform(t *testing.T) {
	defer func(before string) { release = before }(release)
	release = "v1.2.3"
	got := Describe("yardmaster")
	for _, want := range []string{"yardmaster v1.2.3 (commit ", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

func TestBuildsWithoutAReleaseHaveTheVersionOfTheModule(t *testing.T) {
	defer func(before string) { release = before }(release)
	release = ""
	if Version() == "" || Revision() == "" {
		t.Errorf("version %q, revision %q", Version(), Revision())
	}
}
