package component

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func TestAnAPIServerForSimulatedPodsListensOnLoopbackOnly(t *testing.T) {
	config := NewControlPlane(Layout{Root: "/clusters/a"}, Endpoint{Bind: "127.0.0.1", Port: 1234}, time.Second)
	for _, want := range []string{"--bind-address=127.0.0.1", "--secure-port=1234", "--endpoint-reconciler-type=none"} {
		require.True(t, slices.Contains(config.APIServer, want), "no %s", want)
	}
}

// The two halves live in different modules, so that no compiler compares them.
func TestControlPlaneConfigurationMatchesItsReader(t *testing.T) {
	reader, err := os.ReadFile("../../modules/kubernetes/controlplane/config.go")
	require.NoError(t, err)
	content, err := json.Marshal(ControlPlane{})
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(content, &fields))
	for field := range fields {
		require.True(t, strings.Contains(string(reader), "\n\t"+field+" "), "modules/kubernetes/controlplane.Config has no field %s", field)
	}
}
