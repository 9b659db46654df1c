package jobstate

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestAProducerTakesOnlyAKeyThatIsFreeOrItsOwn(t *testing.T) {
	for title, row := range map[string]struct {
		found *Lock
		want  Claim
	}{
		"a free key":                           {nil, ClaimReserve},
		"a job with the key has ended":         {&Lock{ID: "b", Ended: true}, ClaimReserve},
		"an earlier call for the same job":     {&Lock{ID: "a"}, ClaimReserve},
		"the same job, which is stored":        {&Lock{ID: "a", Confirmed: true}, ClaimStored},
		"another producer is sending its job":  {&Lock{ID: "b"}, ClaimWait},
		"another job, which the broker stores": {&Lock{ID: "b", Confirmed: true}, ClaimDuplicate},
	} {
		got := ClaimKey(row.found, "a")
		require.True(t, got == row.want, "%s: %d, want %d", title, got, row.want)
	}
}

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

func TestAWorkerStartsNoJobWhoseKeyAnotherStoredJobHas(t *testing.T) {
	for title, row := range map[string]struct {
		found *Lock
		want  bool
	}{
		"the lock has expired":                       {nil, true},
		"it has the key":                             {&Lock{Holder: "1", Confirmed: true}, true},
		"its producer has not confirmed the key yet": {&Lock{Holder: "1"}, true},
		"another job had the key, and has ended":     {&Lock{Holder: "2", Ended: true}, true},
		"another producer has only reserved the key": {&Lock{Holder: "2"}, true},
		"another job has the key":                    {&Lock{Holder: "2", Confirmed: true}, false},
	} {
		got := MayStart(row.found, "1")
		require.True(t, got == row.want, "%s: %t", title, got)
	}
}

func TestInvalidLocksAreFree(t *testing.T) {
	for _, raw := range []string{"", "null", "[]", `{"id":"a"}`, `{"holder":"1"}`, `{"id":1}`} {
		lock := DecodeLock([]byte(raw))
		require.True(t, lock.IsFree(), "%q is %+v", raw, lock)
	}
}
