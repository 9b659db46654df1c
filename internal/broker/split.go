package broker

// SplitByWeight divides total among weights: each gets at least 1, they add up to total, and
// otherwise each is as near to its weight's share as whole numbers let it be. Total must
// be no less than there are weights.
func SplitByWeight(total int, weights []int) []int {
	sum := 0
	for _, weight := range weights {
		sum += weight
	}
	parts, left := make([]int, len(weights)), total
	for i := range weights {
		parts[i] = 1
		left--
	}
	for ; left > 0; left-- {
		// The one that is furthest below its share; of two, the more urgent.
		most, furthest := 0, total*weights[0]-parts[0]*sum
		for i, weight := range weights {
			if below := total*weight - parts[i]*sum; below > furthest {
				most, furthest = i, below
			}
		}
		parts[most]++
	}
	return parts
}
