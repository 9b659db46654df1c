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

func TestLabelIsAValidValueOfALabel(t *testing.T) {
	defer func(before string) { release = before }(release)
	for given, want := range map[string]string{"v1.2.3": "v1.2.3", "v0.0.0-2026+dirty": "v0.0.0-2026-dirty", "(devel)": "devel", strings.Repeat("v", 80): strings.Repeat("v", 63)} {
		if release = given; Label() != want {
			t.Errorf("%q, want %q", Label(), want)
		}
	}
}
