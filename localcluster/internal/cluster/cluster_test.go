package cluster

import (
	"path/filepath"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func TestClusterNameMustBeValidForFilesAndControlGroups(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "A", "-a", "a-", "a b", "a23456789012345678901234567890123"} {
		_, err := Open(name)
		require.True(t, err != nil, "%q is accepted", name)
	}
	for _, name := range []string{"a", "default", "run-2"} {
		if _, err := Open(name); err != nil {
			t.Error(err)
		}
	}
}

func TestClustersOfOneNameInTwoCachesHaveTheirOwnControlGroups(t *testing.T) {
	groups := map[string]bool{}
	for range 2 {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		c, err := Open("default")
		require.NoError(t, err)
		groups[c.cgroup()] = true
	}
	require.True(t, len(groups) == 2, "control groups %v", groups)
}

func TestTheCacheIsWhereXDGSaysUnlessThatIsRelative(t *testing.T) {
	for variable, want := range map[string]string{
		"/cache":   "/cache/yardmaster/localcluster",
		"relative": "/home/user/.cache/yardmaster/localcluster",
		"":         "/home/user/.cache/yardmaster/localcluster",
	} {
		t.Setenv("HOME", "/home/user")
		t.Setenv("XDG_CACHE_HOME", variable)
		got, err := Home()
		require.True(t, err == nil && got == filepath.FromSlash(want), "%q: got %s, %v", variable, got, err)
	}
}
