package harness

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	twenty := make([]int, 20)
	for i := range twenty {
		twenty[i] = 20 - i
	}
	for _, row := range []struct {
		all  []int
		q    float64
		want int
	}{{twenty, 0.5, 10}, {twenty, 0.99, 20}, {twenty, 1, 20}, {twenty, 0, 1}, {[]int{7}, 0.5, 7}, {nil, 0.5, 0}} {
		require.Equal(t, row.want, Quantile(row.all, row.q))
	}
}

func TestMedianIsTheMiddleValue(t *testing.T) {
	for want, all := range map[float64][]float64{2: {9, 1, 2}, 3: {9, 1, 2, 4}, 0: nil} {
		require.Equal(t, want, Median(all))
	}
}

// RunOnCluster would panic without the flag, and with a second one of its name.
func TestControllerRuntimeDefinesTheFlagOfTheKubeconfig(t *testing.T) {
	require.True(t, kubeconfigFlag() != nil, "there is no flag -kubeconfig")
}
