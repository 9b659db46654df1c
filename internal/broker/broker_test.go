package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

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
		got = append(got, reconnectDelay(tries+1, 0))
	}
	s := time.Second
	want := []time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}
	require.Equal(t, want, got)
	require.Equal(t, s, reconnectDelay(3, 1))
}

func TestIsVersionAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"2.12.0": true, "2.15.2": true, "3.0.0": true, "v2.15.0-RC.1": true, "2.9.9": false, "2.9": false, "": false,
	} {
		require.True(t, IsVersionAtLeast(version, "2.12") == want, "%q is at least 2.12: %t", version, !want)
	}
}
