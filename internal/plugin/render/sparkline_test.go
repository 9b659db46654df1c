package render

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestSparklineIsScaledToTheLargestValue(t *testing.T) {
	for title, row := range map[string]struct {
		values []int64
		want   string
	}{
		"no values":  {nil, ""},
		"only zeros": {[]int64{0, 0}, "▁▁"},
		"the largest value has the highest level": {[]int64{0, 50, 100}, "▁▄█"},
		"a small value does not look like zero":   {[]int64{1, 1000}, "▂█"},
		"very large values":                       {[]int64{1 << 62, 1 << 62}, "██"},
		"a negative value looks like zero":        {[]int64{-5, 7}, "▁█"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, Sparkline(row.values))
		})
	}
}

func TestWorkerBarShowsReadyAndStartingWorkers(t *testing.T) {
	for title, row := range map[string]struct {
		ready, desired, limit int32
		want                  string
	}{
		"no workers":                             {0, 0, 10, "············"},
		"all workers of the limit":               {10, 10, 10, "████████████"},
		"a quarter ready and a quarter starting": {3, 6, 12, "███▒▒▒······"},
		"one worker of a high limit":             {1, 1, 10_000, "█···········"},
		"one starting worker is visible":         {100, 101, 1000, "█▒··········"},
		"more workers than the limit":            {6, 3, 3, "████████████"},
		"a limit of zero":                        {0, 0, 0, "············"},
		"very large numbers":                     {1 << 30, 1 << 30, 1<<31 - 1, "██████······"},
		"fewer desired than ready":               {4, 2, 12, "████········"},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, WorkerBar(row.ready, row.desired, row.limit))
		})
	}
}
