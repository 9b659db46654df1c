package cluster

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func TestInvalidOptionsAreRefused(t *testing.T) {
	good := Options{Mode: Node, Nodes: 2, JobBatch: time.Second}
	require.NoError(t, good.Validate())
	for name, spoil := range map[string]func(*Options){
		"an unknown mode":       func(o *Options) { o.Mode = "kind" },
		"no nodes":              func(o *Options) { o.Nodes = 0 },
		"a port out of range":   func(o *Options) { o.Port = 65536 },
		"no Job batch period":   func(o *Options) { o.JobBatch = 0 },
		"a negative port":       func(o *Options) { o.Port = -1 },
		"a negative node count": func(o *Options) { o.Nodes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			require.True(t, bad.Validate() != nil, "it is accepted")
		})
	}
}

func TestClusterNameMustBeValidForFilesAndControlGroups(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "A", "-a", "a-", "a b", "a23456789012345678901234567890123"} {
		if _, err := Open(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
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
