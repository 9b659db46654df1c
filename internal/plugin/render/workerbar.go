package render

import (
	"strings"
)

// sparklineLevels are the characters of a sparkline, the lowest first.
var sparklineLevels = []rune("▁▂▃▄▅▆▇█")

// Sparkline returns one character per value, scaled to the largest value. Only zero has the
// lowest level: a small value never looks like zero.
func Sparkline(values []int64) string {
	largest := int64(1)
	for _, value := range values {
		largest = max(largest, value)
	}
	var line strings.Builder
	for _, value := range values {
		level := 0
		if value > 0 {
			level = max(1, int(float64(value)/float64(largest)*float64(len(sparklineLevels)-1)))
		}
		line.WriteRune(sparklineLevels[level])
	}
	return line.String()
}

// barColumns is the width of a worker bar.
const barColumns = 12

// WorkerBar shows ready and desired workers on a scale from zero to limit.
func WorkerBar(ready, desired, limit int32) string {
	limit = max(limit, ready, desired, 1)
	columns := func(number int32) int {
		if number <= 0 {
			return 0
		}
		return max(1, int(int64(number)*barColumns/int64(limit)))
	}
	full := columns(ready)
	starting := max(0, columns(desired)-full)
	if starting == 0 && desired > ready && full < barColumns {
		starting = 1
	}
	return strings.Repeat("█", full) + strings.Repeat("▒", starting) + strings.Repeat("·", barColumns-full-starting)
}
