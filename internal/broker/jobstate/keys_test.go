package jobstate

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAMessageThatHasEndedIsNotTakenForOneThatWaits(t *testing.T) {
	afterEnd := Reserve(&Lock{ID: "a", Holder: "1", Ended: true}, "a", "2")
	again := Reserve(afterEnd, "a", "3")            // the answer to the first call was lost
	other := Reserve(again.Release(), "b", "4")     // another job has the key meanwhile, and is rejected
	third := Reserve(other.Release(), "a", "5")     // its holder is the last of four
	restarted := Take(afterEnd.Release(), "a", "1") // its acknowledgement was lost
	for title, row := range map[string]struct {
		reservation *Lock
		stored      string
		want        bool
	}{
		"the message is gone":                  {&Lock{Holder: "2"}, "", false},
		"a message of an earlier call waits":   {&Lock{Holder: "2"}, "1", true},
		"its job has ended":                    {afterEnd, "1", false},
		"its job has ended, after three calls": {again, "1", false},
		"that of the second call waits":        {again, "2", true},
		"another job had the key meanwhile":    {third, "1", false},
		"it was delivered again":               {restarted, "1", true},
	} {
		lock := *row.reservation
		got := lock.Adopt(row.stored)
		require.True(t, got == row.want && (!got || lock.Holder == row.stored), "%s: %t with %+v", title, got, lock)
	}
	lock := third
	for range 2 * maxEndedHolders {
		lock = Reserve(lock.Release(), "a", "x")
	}
	require.True(t, len(lock.EndedHolders) == maxEndedHolders, "%+v", lock)
}

func TestInvalidLocksAreFree(t *testing.T) {
	for _, raw := range []string{"", "null", "[]", `{"id":"a"}`, `{"holder":"1"}`, `{"id":1}`} {
		lock := DecodeLock([]byte(raw))
		require.True(t, lock.IsFree(), "%q is %+v", raw, lock)
	}
}

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
