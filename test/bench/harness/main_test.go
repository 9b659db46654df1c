package harness

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// RunOnCluster would panic without the flag, and with a second one of its name.
func TestControllerRuntimeDefinesTheFlagOfTheKubeconfig(t *testing.T) {
	require.True(t, kubeconfigFlag() != nil, "there is no flag -kubeconfig")
}
