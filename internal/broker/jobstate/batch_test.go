package jobstate

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

func TestAJobOfABatchEndsOnce(t *testing.T) {
	for _, total := range []int{1, 7, 8, 9, 64, MaxBatchJobs} {
		b := NewBatch(total, now)
		for count, member := range rand.Perm(total) {
			if !b.End(member, member%2 == 0) || b.End(member, true) || b.EndedCount() != count+1 {
				t.Fatalf("job %d of %d: %d have ended", member, total, b.EndedCount())
			}
		}
		if b.End(-1, true) || b.End(total, true) || b.Failed != (total+1)/2 {
			t.Errorf("%d failed", b.Failed)
		}
		raw, err := json.Marshal(b)
		if again := DecodeBatch(raw); err != nil || again == nil || again.EndedCount() != total {
			t.Errorf("%v: %s", err, raw)
		}
	}
}

func TestTheFinalJobRunsFromTheFirstMessageWhenAllOthersHaveEnded(t *testing.T) {
	b := NewBatch(2, now)
	require := func(holder string, want FinalStart, wantChanged bool) {
		t.Helper()
		if start, changed := b.StartFinal(holder); start != want || changed != wantChanged {
			t.Errorf("%s: %d, %t; want %d, %t", holder, start, changed, want, wantChanged)
		}
	}
	require("1", FinalWaits, true)
	require("1", FinalWaits, false)
	require("2", FinalIsDuplicate, false)
	b.End(0, false)
	require("1", FinalWaits, false)
	b.End(1, true)
	require("2", FinalIsDuplicate, false)
	require("1", FinalRuns, false)
	if !b.Complete {
		t.Error("the producer has sent all jobs")
	}
}

func TestAJobThatWaitsIsDeliveredAgainAfterATenthOfTheTime(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Minute: 6 * time.Second, time.Hour: 30 * time.Second,
	} {
		if got := WaitDelay(now, now.Add(age)); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}

func TestInvalidBatchesAreIgnored(t *testing.T) {
	for _, raw := range []string{"", "null", `{"total":0}`, `{"total":9,"ended":"AA=="}`, `{"total":10001,"ended":"AA=="}`, `{"total":-1,"ended":""}`} {
		if b := DecodeBatch([]byte(raw)); b != nil {
			t.Errorf("%s is %+v", raw, b)
		}
	}
}
