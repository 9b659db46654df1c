package jobstate

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAJobOfABatchEndsOnce(t *testing.T) {
	for _, total := range []int{1, 7, 8, 9, 64, MaxBatchJobs} {
		b := NewBatch(total, now)
		for count, member := range rand.Perm(total) {
			endsOnce := b.End(member, member%2 == 0) && !b.End(member, true)
			require.True(t, endsOnce && b.EndedCount() == count+1, "job %d of %d: %d have ended", member, total, b.EndedCount())
		}
		require.True(t, !b.End(-1, true) && !b.End(total, true) && b.Failed == (total+1)/2, "%d failed", b.Failed)
		raw, err := json.Marshal(b)
		again := DecodeBatch(raw)
		require.True(t, err == nil && again != nil && again.EndedCount() == total, "%v: %s", err, raw)
	}
}

func TestAJobThatWaitsIsDeliveredAgainAfterATenthOfTheTime(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Minute: 6 * time.Second, time.Hour: 30 * time.Second,
	} {
		got := WaitDelay(now, now.Add(age))
		require.True(t, got == want, "after %s: %s, want %s", age, got, want)
	}
}

func TestInvalidBatchesAreIgnored(t *testing.T) {
	for _, raw := range []string{"", "null", `{"total":0}`, `{"total":9,"ended":"AA=="}`, `{"total":10001,"ended":"AA=="}`, `{"total":-1,"ended":""}`} {
		require.True(t, DecodeBatch([]byte(raw)) == nil, "%s is a batch", raw)
	}
}
