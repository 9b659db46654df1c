package operator

import (
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheCollectorTakesMoreMemoryOnlyUnderLoadAndBelowTheLimit(t *testing.T) {
	const mib = 1 << 20
	for name, row := range map[string]struct {
		live, limit int64
		// perSecond are the allocated bytes in each interval.
		perSecond []int64
		want      int
	}{
		"at rest":                         {40 * mib, 230 * mib, []int64{mib, mib}, targetAtRest},
		"under load":                      {40 * mib, 230 * mib, []int64{mib, 50 * mib}, targetUnderLoad},
		"just below load":                 {40 * mib, 230 * mib, []int64{mib, 5*mib - mib/10}, targetAtRest},
		"soon after the load":             {40 * mib, 230 * mib, []int64{50 * mib, mib, mib}, targetUnderLoad},
		"long after the load":             {40 * mib, 230 * mib, append([]int64{50 * mib}, make([]int64, 10)...), targetAtRest},
		"load that comes back":            {40 * mib, 230 * mib, append(append([]int64{50 * mib}, make([]int64, 10)...), 50*mib), targetUnderLoad},
		"near the memory limit":           {100 * mib, 230 * mib, []int64{100 * mib}, targetAtRest},
		"without a memory limit":          {4000 * mib, 1 << 62, []int64{4000 * mib}, targetUnderLoad},
		"without a collection yet":        {0, 230 * mib, []int64{mib}, targetUnderLoad},
		"a first measurement has no rate": {40 * mib, 230 * mib, nil, targetAtRest},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			allocated := uint64(1 << 40)
			state, target := collectorState{}.next(now, allocated, uint64(row.live), row.limit)
			for _, rate := range row.perSecond {
				now = now.Add(collectorInterval)
				allocated += uint64(rate) * uint64(collectorInterval/time.Second)
				state, target = state.next(now, allocated, uint64(row.live), row.limit)
			}
			require.Equal(t, row.want, target)
		})
	}
}
