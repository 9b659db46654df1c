package harness

import (
	"cmp"
	"math"
	"slices"
)

// Quantile is the value that a share q of all are not above: of few values the 99th
// percentile is the greatest. It is zero without any.
func Quantile[T cmp.Ordered](all []T, q float64) T {
	if len(all) == 0 {
		var none T
		return none
	}
	ordered := slices.Sorted(slices.Values(all))
	return ordered[max(int(math.Ceil(q*float64(len(ordered)))), 1)-1]
}

// Median is the middle of all, or of the two in the middle. It is zero without any.
func Median(all []float64) float64 {
	ordered := slices.Sorted(slices.Values(all))
	if len(ordered) == 0 {
		return 0
	}
	return (ordered[(len(ordered)-1)/2] + ordered[len(ordered)/2]) / 2
}
