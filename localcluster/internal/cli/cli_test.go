package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func execute(t *testing.T, args ...string) error {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&bytes.Buffer{})
	return root.ExecuteContext(t.Context())
}

func TestInvalidArgumentsAreNamedInTheError(t *testing.T) {
	for args, want := range map[string]string{
		"up --mode kind":                       `unknown mode "kind"`,
		"up --name UP":                         `"UP" is not a valid cluster name`,
		"up --mode control-plane --nodes 0":    "at least one node",
		"up --job-batch 1":                     "missing unit",
		"up --job-batch 0s":                    "must be positive, not 0s",
		"up --nodes -1":                        "at least one node, not -1",
		"up --port 65536":                      "65536 is not a port",
		"up --port -1":                         "-1 is not a port",
		"up now":                               "unknown command",
		"build --mode kind":                    `unknown mode "kind"`,
		"load-image":                           "requires at least 1 arg",
		"build-image --tag a:1 --output a.tar": `required flag(s) "file" not set`,
		"build-image --tag a:1 --output a.tar --file a": "is not SOURCE:/path[:mode]",
		"restart":            "accepts 1 arg",
		"restart kubelet":    `no component "kubelet" is running`,
		"kubectl -- get pod": "the cluster is not up",
		"nonsense":           "unknown command",
	} {
		t.Run(args, func(t *testing.T) {
			err := execute(t, strings.Fields(args)...)
			require.True(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %q in it", err, want)
		})
	}
}

func TestStatusOfAMissingClusterFailsAndDownSucceeds(t *testing.T) {
	err := execute(t, "status")
	require.True(t, errors.Is(err, errSaid), "status: %v", err)
	require.NoError(t, execute(t, "down"))
}
