package lab

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
