package jobstate

import (
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
