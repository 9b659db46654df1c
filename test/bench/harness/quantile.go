package harness

import (
	"cmp"
	"math"
	"slices"
)

// Quantile returns the smallest value that is at least as large as a share q of all values
// (nearest rank). For few values, the 99th percentile is therefore the maximum. Without values
// it returns zero.
func Quantile[T cmp.Ordered](all []T, q float64) T {
	if len(all) == 0 {
		var zero T
		return zero
	}
	ordered := slices.Sorted(slices.Values(all))
	return ordered[max(int(math.Ceil(q*float64(len(ordered)))), 1)-1]
}

// Median returns the middle value, or the mean of the two middle values. Without values it
// returns zero.
func Median(all []float64) float64 {
	ordered := slices.Sorted(slices.Values(all))
	if len(ordered) == 0 {
		return 0
	}
	return (ordered[(len(ordered)-1)/2] + ordered[len(ordered)/2]) / 2
}
