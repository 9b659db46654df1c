package broker

// SplitByWeight divides total by weight. Each share is at least 1, the shares add up to
// total, and each is as close to its exact share as integers allow. Total must be at least
// the number of weights.
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
