package render

import (
	"strings"
)

// sparklineLevels of a spark line, the lowest first.
var sparklineLevels = []rune("▁▂▃▄▅▆▇█")

// Sparkline is a line of signs, one for each figure, as high as the figure is beside the
// greatest. Only nothing is at the bottom: what is little does not look like nothing.
func Sparkline(figures []int64) string {
	greatest := int64(1)
	for _, figure := range figures {
		greatest = max(greatest, figure)
	}
	var line strings.Builder
	for _, figure := range figures {
		level := 0
		if figure > 0 {
			level = max(1, int(float64(figure)/float64(greatest)*float64(len(sparklineLevels)-1)))
		}
		line.WriteRune(sparklineLevels[level])
	}
	return line.String()
}

// barColumns is how many columns a bar takes.
const barColumns = 12

// WorkerBar shows so many workers of at most room: those that are ready, and those that are to
// come.
func WorkerBar(ready, wanted, room int32) string {
	room = max(room, ready, wanted, 1)
	cells := func(number int32) int {
		if number <= 0 {
			return 0
		}
		return max(1, int(int64(number)*barColumns/int64(room)))
	}
	full := cells(ready)
	coming := max(0, cells(wanted)-full)
	if coming == 0 && wanted > ready && full < barColumns {
		coming = 1
	}
	return strings.Repeat("█", full) + strings.Repeat("▒", coming) + strings.Repeat("·", barColumns-full-coming)
}
