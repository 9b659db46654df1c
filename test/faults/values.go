package faults

import (
	"math"
	"strings"
	"time"
)

// Texts returns extreme texts: empty, short ones that are no plain text, and one of the maximum length.
func Texts(maxBytes int) []string {
	return []string{"", "\x00", "\r\n", "\xff\xfe is not UTF-8", "\u202e🦺", strings.Repeat("x", maxBytes)}
}

// Numbers returns extreme numbers.
func Numbers() []int64 { return []int64{math.MinInt64, -1, 0, math.MaxInt32, math.MaxInt64} }

// Times returns extreme times: far in the past and far in the future.
func Times() (past, future time.Time) {
	return time.Date(1, time.January, 2, 0, 0, 0, 0, time.UTC), time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
}
