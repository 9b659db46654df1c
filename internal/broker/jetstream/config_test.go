package jetstream

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func FuzzSplitByWeightUsesTotalAndGivesEachAShare(f *testing.F) {
	f.Add(10, 1, 1, 1)
	f.Add(3, 100, 1, 1)
	f.Add(1000, 7, 2, 1)
	f.Fuzz(func(t *testing.T, total, a, b, c int) {
		within := func(n, least, most int) int { return least + int(uint(n)%uint(most-least+1)) }
		a, b, c, total = within(a, 1, 100), within(b, 1, 100), within(c, 1, 100), within(total, 3, 10_000)
		parts, weights := splitByWeight(total, []int{a, b, c}), []int{a, b, c}
		sum := 0
		for i, part := range parts {
			sum += part
			share := float64(total*weights[i]) / float64(a+b+c)
			require.True(t, part >= 1 && float64(part) <= max(share+1, 1), "%d of %d for weight %d of %v", part, total, weights[i], weights)
		}
		require.True(t, sum == total, "%v adds up to %d, not %d", parts, sum, total)
	})
}
