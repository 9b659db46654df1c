package broker

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestValidateQueueConfig(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*QueueConfig)
		want   []string
	}{
		"the defaults":              {func(*QueueConfig) {}, nil},
		"a name with a dot":         {func(q *QueueConfig) { q.Name = "a.b" }, []string{`name is "a.b"`}},
		"a name with an underscore": {func(q *QueueConfig) { q.Name = "a_b" }, []string{`name is "a_b"`}},
		"a name with a wildcard":    {func(q *QueueConfig) { q.Name = "a>" }, []string{`name is "a>"`}},
		"a name of 64 characters":   {func(q *QueueConfig) { q.Name = strings.Repeat("a", 64) }, []string{"name is"}},
		"no owner":                  {func(q *QueueConfig) { q.Owner = QueueOwner{} }, []string{"owner has no UID"}},
		"no priorities":             {func(q *QueueConfig) { q.Priorities = nil }, []string{"priorities has 0"}},
		"a duplicate priority and a weight of 0": {
			func(q *QueueConfig) { q.Priorities = []Priority{{"a", 1}, {"a", 0}} },
			[]string{`priorities[1].name "a" is a duplicate`, "priorities[1].weight is 0"},
		},
		"maxInFlight below the number of priorities": {
			func(q *QueueConfig) { q.Priorities, q.MaxInFlight = []Priority{{"a", 1}, {"b", 1}}, 1 },
			[]string{"maxInFlight is 1, must be at least 2, the number of priorities"},
		},
		"negative bounds": {
			func(q *QueueConfig) { q.MaxInFlight, q.MaxBacklog, q.DeadLetter.MaxEntries = -1, -1, -1 },
			[]string{"maxInFlight is", "maxInFlight is -1", "maxBacklog is -1", "deadLetter.maxEntries is -1"},
		},
		"a rate limit of 0": {func(q *QueueConfig) { q.RateLimit = &RateLimit{Per: time.Second, Burst: 1} }, []string{"rateLimit.limit is 0"}},
		"more than one job per microsecond": {
			func(q *QueueConfig) { q.RateLimit = &RateLimit{Limit: 2_000_000, Per: time.Second, Burst: 1} },
			[]string{"rateLimit allows more than one job per microsecond"},
		},
		"a lease below 5s":            {func(q *QueueConfig) { q.Lease = time.Second }, []string{"lease is 1s, must be 5s to 1h0m0s"}},
		"a multiplier below 100%":     {func(q *QueueConfig) { q.Retry.MultiplierPercent = 50 }, []string{"retry.multiplierPercent is 50"}},
		"maxDelay below initialDelay": {func(q *QueueConfig) { q.Retry.MaxDelay = 0 }, []string{"retry.maxDelay is 0s, shorter"}},
		"an unknown drift policy":     {func(q *QueueConfig) { q.Drift = "x" }, []string{`drift is "x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			q := DefaultQueueConfig("orders")
			q.Owner.UID = "1"
			row.change(&q)
			var got []string
			if err := q.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			require.True(t, slices.EqualFunc(got, row.want, strings.Contains), "%q, want %q", got, row.want)
		})
	}
}

func TestOwnership(t *testing.T) {
	owner := QueueOwner{UID: "1", Name: "team-a/mail", Cluster: "c"}
	other := QueueOwner{UID: "2", Name: "team-a/post", Cluster: "c"}
	with := func(o QueueOwner, change func(*QueueOwner)) QueueOwner {
		change(&o)
		return o
	}
	for title, row := range map[string]struct {
		found         QueueOwner
		replacesUID   string
		adoptsUnowned bool
		want          bool
	}{
		"the owner keeps its queue":                                        {owner, "", false, true},
		"the owner keeps a queue that a version before v0.2 recorded":      {with(owner, func(o *QueueOwner) { o.Cluster = "" }), "", false, true},
		"another owner of the namespace does not get it":                   {other, "", false, false},
		"the queue of a removed owner is taken over":                       {other, "2", false, true},
		"not if the removed owner was in another namespace":                {with(other, func(o *QueueOwner) { o.Name = "team-b/post" }), "2", false, false},
		"not if the namespace only begins with the same text":              {with(other, func(o *QueueOwner) { o.Name = "team-ab/post" }), "2", false, false},
		"not if the removed owner was in another cluster":                  {with(other, func(o *QueueOwner) { o.Cluster = "d" }), "2", false, false},
		"not if the cluster of the removed owner is unknown":               {with(other, func(o *QueueOwner) { o.Cluster = "" }), "2", false, false},
		"a released queue is taken over":                                   {other.Released(), "", false, true},
		"not if it was released in another namespace":                      {QueueOwner{Name: "team-b/mail", Cluster: "c"}, "", true, false},
		"not if it was released in another cluster":                        {QueueOwner{Name: "team-a/mail", Cluster: "d"}, "", true, false},
		"a queue without an owner is adopted with the namespace's broker":  {QueueOwner{}, "", true, true},
		"a queue without an owner is not adopted on the operator's broker": {QueueOwner{}, "", false, false},
	} {
		t.Run(title, func(t *testing.T) {
			q := QueueConfig{Name: "mail", Owner: owner, ReplacesOwnerUID: row.replacesUID, AdoptsUnowned: row.adoptsUnowned}
			err := q.CheckOwnership(row.found)
			require.True(t, (err == nil) == row.want && (err == nil || ClassOf(err) == ClassConflict), "got %v", err)
			require.True(t, err == nil || row.found.Name == "" || !strings.Contains(err.Error(), row.found.Name), "the message names the other owner: %v", err)
			err = CheckOwner("mail", row.found, owner)
			require.True(t, (err == nil) == (row.found.UID == owner.UID), "a change without ownership: %v", err)
		})
	}
}

func TestNoUserCanChooseAScopedName(t *testing.T) {
	scoped := ScopedQueueName(strings.Repeat("n", 63), strings.Repeat("m", 63), ClusterID("uid"))
	q := DefaultQueueConfig(scoped)
	q.Owner.UID = "1"
	require.NoError(t, q.Validate())
	require.True(t, !namePattern.MatchString(ScopedQueueName("a", "b", ClusterID("uid"))), "the name can be chosen")
	for _, name := range []string{"a_dead", "a_b", "a_b_dead", "a_b_0123456789_dead", "a_b_012345678x"} {
		require.True(t, !queueNamePattern.MatchString(name), "%s is valid, although engines build such names", name)
	}
	require.True(t, ClusterID("one") != ClusterID("other"), "two clusters have one ID")
}

func TestReconnectDelay(t *testing.T) {
	var got []time.Duration
	for tries := range 10 {
		got = append(got, retryDelay(tries+1, maxReconnectDelay, 0))
	}
	s := time.Second
	want := []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}
	require.Equal(t, want, got)
	require.Equal(t, s, retryDelay(3, maxReconnectDelay, 1))
	require.True(t, RetryDelay(100) <= 5*s && RetryDelay(100) >= 5*s/2, "a worker waits for %s", RetryDelay(100))
}

func TestIsVersionAtLeast(t *testing.T) {
	for version, want := range map[string]bool{"2.12.0": true, "2.15.2": true, "3.0.0": true, "v2.15.0-RC.1": true, "2.9.9": false, "2.9": false, "": false} {
		require.True(t, IsVersionAtLeast(version, "2.12") == want, "%q is at least 2.12: %t", version, !want)
	}
}

func TestAnIdentifierIsShortTextWithoutControlCharacters(t *testing.T) {
	for id, want := range map[string]bool{
		"order-5": true, "a b/ü": true, strings.Repeat("x", maxIdentifierBytes): true,
		"": false, strings.Repeat("x", maxIdentifierBytes+1): false, "a\nb": false, "a\x00": false, "\xff": false,
	} {
		require.True(t, IsIdentifier(id) == want, "IsIdentifier(%q) is not %t", id, want)
	}
}

func TestAHeaderIsFoundInAnySpelling(t *testing.T) {
	for title, test := range map[string]struct {
		headers map[string][]string
		want    string
	}{
		"no headers":             {nil, ""},
		"without a value":        {map[string][]string{KindHeader: {}}, ""},
		"the exact spelling":     {map[string][]string{"YARDMASTER-KIND": {"a"}, KindHeader: {"b", "c"}}, "b"},
		"another spelling":       {map[string][]string{"yardmaster-kind": {"a"}}, "a"},
		"two spellings: by name": {map[string][]string{"yardmaster-kind": {"a"}, "YARDMASTER-KIND": {"b"}}, "b"},
	} {
		t.Run(title, func(t *testing.T) { require.Equal(t, test.want, HeaderValue(test.headers, KindHeader)) })
	}
}

func TestHandlersSeeTheTimeoutAndTheKindOfAllHeadersWithThePrefix(t *testing.T) {
	for name, want := range map[string]bool{
		"Tenant": true, "Yardmaster-Timeout": true, "yardmaster-timeout": true, "Yardmaster-Kind": true, "yardmaster-job-id": false,
		"Yardmaster-Error": false, "YARDMASTER-ERROR": false, "Yardmaster-": false, "Yardmaster-Timeout-": false,
	} {
		require.True(t, IsProducerHeader(name) == want, "IsProducerHeader(%q) is not %t", name, want)
	}
}

func TestTimeoutOfAMessageIsThatOfItsHeaderElseOfItsQueue(t *testing.T) {
	q := QueueConfig{JobTimeout: time.Minute}
	for title, test := range map[string]struct {
		headers map[string][]string
		want    time.Duration
		isError bool
	}{
		"no headers":               {nil, time.Minute, false},
		"a header in any spelling": {map[string][]string{"yardmaster-timeout": {"90s"}}, 90 * time.Second, false},
		"a number":                 {map[string][]string{TimeoutHeader: {"90"}}, 0, true},
		"more than a day":          {map[string][]string{TimeoutHeader: {"24h1s"}}, 0, true},
	} {
		t.Run(title, func(t *testing.T) {
			got, err := q.TimeoutOf(test.headers)
			require.True(t, got == test.want && (err != nil) == test.isError, "timeout %s and error %v, want %s", got, err, test.want)
		})
	}
}

func TestDelaysDoubleWithinTheJitterRange(t *testing.T) {
	retry := DefaultQueueConfig("orders").Retry
	for spread, first := range map[float64]time.Duration{0: 800 * time.Millisecond, 0.5: time.Second, 1: 1200 * time.Millisecond} {
		got := []time.Duration{retry.DelayAfter(1, spread), retry.DelayAfter(2, spread), retry.DelayAfter(3, spread)}
		require.Equal(t, []time.Duration{first, 2 * first, 4 * first}, got)
	}
}

func FuzzDelayNeverExceedsMaxDelay(f *testing.F) {
	f.Add(int64(time.Second), int64(time.Minute), 200, 20, 5, 0.5)
	f.Add(int64(time.Second), int64(time.Minute), 200, 20, 1000, 0.5)
	f.Fuzz(func(t *testing.T, initialDelay, maxDelay int64, multiplier, jitter, attempt int, spread float64) {
		upTo := func(n, limit int64) int64 { return int64(uint64(n) % uint64(limit+1)) }
		if math.IsNaN(spread) || math.IsInf(spread, 0) {
			spread = 0
		}
		spread = math.Abs(math.Mod(spread, 1))
		retry := RetryPolicy{
			MaxDelay:          time.Duration(upTo(maxDelay, int64(24*time.Hour))),
			MultiplierPercent: 100 + int(upTo(int64(multiplier), 900)),
			JitterPercent:     int(upTo(int64(jitter), 100)),
		}
		retry.InitialDelay = time.Duration(upTo(initialDelay, int64(retry.MaxDelay)))
		got := retry.DelayAfter(attempt, spread)
		require.True(t, got >= 0 && got <= retry.MaxDelay, "%+v, attempt %d, spread %f: delay %s is out of bounds", retry, attempt, spread, got)
	})
}

// Only a message that is lost alone may be the cause of a loss, and only failures and such losses use up attempts.
func TestOnlyLossesAloneUseUpAttempts(t *testing.T) {
	lost := func(alone ...bool) (h History) {
		for _, one := range alone {
			h = h.AfterStart(one)
		}
		return h
	}
	waited := History{Lost: 3}
	for title, row := range map[string]struct {
		history History
		attempt int
		suspect bool
	}{
		"new":                                 {History{}, 1, false},
		"failed and released":                 {History{}.AfterFailure().AfterFailure().AfterRelease(), 3, false},
		"lost while it waited in its process": {waited, 1, false},
		"started after that, and lost":        {waited.AfterStart(false), 1, true},
		"lost beside others, and failed":      {lost(false, false).AfterFailure(), 2, true},
		"lost alone":                          {lost(false, false, true), 4, true},
		"lost alone, and failed":              {lost(false, true).AfterFailure(), 4, true},
	} {
		attempt, isSuspect := row.history.Attempt(), row.history.IsSuspect()
		require.True(t, attempt == row.attempt && isSuspect == row.suspect, "%s: attempt %d, suspect %t", title, attempt, isSuspect)
	}
}

// storedJob has one state before its cancellation is requested, and another one after that.
type storedJob struct {
	JobStore
	state, next jobstate.State
	removed     bool
}

func (s *storedJob) Job(context.Context, string, string) (jobstate.Info, error) {
	return jobstate.Info{State: s.state}, nil
}

func (s *storedJob) CancelJob(context.Context, string, string) (bool, error) {
	s.state = s.next
	return s.removed, nil
}

func TestACancellationIsTooLateOnlyIfTheJobHadEndedBefore(t *testing.T) {
	for title, c := range map[string]struct {
		job  storedJob
		want CanceledJob
	}{
		"it waits":                   {storedJob{state: jobstate.Waiting, removed: true}, CanceledJob{Removed: true}},
		"it runs":                    {storedJob{state: jobstate.Running, next: jobstate.Running}, CanceledJob{State: jobstate.Running}},
		"its worker cancels at once": {storedJob{state: jobstate.Running, next: jobstate.Canceled}, CanceledJob{State: jobstate.Canceled}},
		"it was canceled before":     {storedJob{state: jobstate.Canceled, next: jobstate.Canceled}, CanceledJob{Ended: true, State: jobstate.Canceled}},
		"it ends meanwhile":          {storedJob{state: jobstate.Running, next: jobstate.Done}, CanceledJob{Ended: true, State: jobstate.Done}},
		"it was dead before":         {storedJob{state: jobstate.Dead, next: jobstate.Dead}, CanceledJob{Ended: true, State: jobstate.Dead}},
		"it is not known":            {storedJob{state: jobstate.Unknown, next: jobstate.Unknown}, CanceledJob{State: jobstate.Unknown}},
	} {
		got, err := CancelStoredJob(t.Context(), &c.job, "orders", "1")
		require.True(t, err == nil && got == c.want, "%s: %+v, %v, want %+v", title, got, err, c.want)
	}
}
