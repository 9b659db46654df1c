package jobstate

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// broker is what a broker answers.
type broker struct {
	delayed   bool
	message   *Message
	delivered bool
	// completeSince is since when all entries exist.
	completeSince time.Time
}

func (b *broker) decide(t *testing.T, e *Evidence) Info {
	t.Helper()
	for range 10 {
		info, question := Decide(e)
		switch question {
		case Answered:
			return info
		case AskDelayed:
			e.Delayed, e.DueTime = b.delayed, now.Add(time.Hour)
		case AskMessage:
			e.Message = b.message
		case AskClock:
			e.Now, e.CompleteSince = now, b.completeSince
		case AskDelivered:
			e.Delivered = b.delivered
		}
		e.Answer(question)
	}
	t.Fatal("it asks without end")
	return Info{}
}

func TestOnlyWhatIsKnownIsClaimed(t *testing.T) {
	stored := &Message{StoredTime: ago(time.Minute)}
	for title, row := range map[string]struct {
		entry    *Entry
		age      time.Duration
		sequence uint64
		broker   broker
		want     State
	}{
		"a job that is done": {entry: &Entry{State: Done}, want: Done},
		"a dead job":         {entry: &Entry{State: Dead}, want: Dead},
		"a canceled job":     {entry: &Entry{State: Canceled}, want: Canceled},
		"a running job that was reported within its lease":        {entry: &Entry{State: Running, LeaseSeconds: 30}, age: 29 * time.Second, want: Running},
		"a running job whose worker is silent":                    {entry: &Entry{State: Running, LeaseSeconds: 30}, age: 31 * time.Second, want: Unknown},
		"a job that waits for a retry":                            {entry: &Entry{State: Retrying}, broker: broker{message: stored}, want: Retrying},
		"a job that waits for a retry, and whose message is gone": {entry: &Entry{State: Retrying}, want: Unknown},
		"a tracked job":                                                  {entry: &Entry{State: Waiting}, broker: broker{message: stored}, want: Waiting},
		"a tracked job whose message is gone":                            {entry: &Entry{State: Waiting}, want: Unknown},
		"a delayed job":                                                  {broker: broker{delayed: true}, want: Waiting},
		"a tracked job that is delayed":                                  {entry: &Entry{State: Waiting}, broker: broker{delayed: true}, want: Waiting},
		"an ID that names no message":                                    {broker: broker{message: stored}, want: Unknown},
		"a stored message that nobody has reported":                      {sequence: 7, broker: broker{message: stored, delivered: true, completeSince: ago(time.Hour)}, want: Waiting},
		"a message that is gone":                                         {sequence: 7, broker: broker{completeSince: ago(time.Hour)}, want: Unknown},
		"a message that was delivered, and whose entry may have expired": {sequence: 7, broker: broker{message: stored, delivered: true, completeSince: ago(time.Second)}, want: Unknown},
		"an old message that was never delivered":                        {sequence: 7, broker: broker{message: stored, completeSince: ago(time.Second)}, want: Waiting},
	} {
		t.Run(title, func(t *testing.T) {
			e := &Evidence{ID: "7", Entry: row.entry, EntryTime: ago(row.age), Sequence: row.sequence}
			info := row.broker.decide(t, e)
			require.True(t, info.State == row.want, "%s, want %s", info.State, row.want)
		})
	}
}

func TestAnEntryIsReplacedOnlyByALaterOne(t *testing.T) {
	entry := func(sequence, delivery uint64, state State) *Entry {
		return &Entry{Sequence: sequence, Delivery: delivery, State: state}
	}
	for title, row := range map[string]struct {
		stored, entry *Entry
		want          bool
	}{
		"no entry":         {nil, entry(1, 1, Running), true},
		"a later delivery": {entry(1, 1, Running), entry(1, 2, Running), true},
		"a later delivery, after the job was done": {entry(1, 1, Done), entry(1, 2, Running), true},
		"a worker that has lost its lease":         {entry(1, 2, Running), entry(1, 1, Done), false},
		"a later message with the same ID":         {entry(1, 5, Dead), entry(2, 0, Waiting), true},
		"an earlier message":                       {entry(2, 0, Waiting), entry(1, 5, Dead), false},
		"a late report of the same attempt":        {entry(1, 1, Done), entry(1, 1, Running), false},
		"the end of the same attempt":              {entry(1, 1, Running), entry(1, 1, Done), true},
		"the producer, after a worker":             {entry(1, 1, Running), entry(1, 0, Waiting), false},
	} {
		require.True(t, row.entry.Replaces(row.stored) == row.want, "%s: not %t", title, row.want)
	}
}

func TestEntriesAreBoundedAndInvalidOnesAreIgnored(t *testing.T) {
	raw, err := (&Entry{State: Dead, Error: strings.Repeat("é", MaxErrorBytes)}).Encode()
	e := Decode(raw)
	require.True(t, err == nil && e != nil && len(e.Error) <= MaxErrorBytes && strings.HasSuffix(e.Error, "é"), "%s, %v", raw, err)
	for _, invalid := range []string{"", "null", "[]", `{"state":"happy"}`, `{"state":"unknown"}`, `{"state":"done","attempt":"x"}`} {
		require.True(t, Decode([]byte(invalid)) == nil, "%q was decoded", invalid)
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
