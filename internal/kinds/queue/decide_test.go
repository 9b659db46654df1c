package queue

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/asynq"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

// connectionError is an error of the connection rather than of the broker.
type connectionError struct{ error }

func (connectionError) Problem() decision.Problem {
	return decision.Problem{Reason: v1alpha1.ReasonSecretNotFound, Message: "not found"}
}

func requesting(request string) func(*Observation) {
	return func(o *Observation) { o.Queue.Annotations = map[string]string{AnnotationDeadLetters: request} }
}

// unobserved returns an observation of a Queue with a finalizer and a connected broker.
func unobserved(changes ...func(*Observation)) Observation {
	o := Observation{
		Queue:     newQueue(func(q *v1alpha1.Queue) { q.Finalizers = []string{v1alpha1.QueueFinalizer} }),
		ClusterID: testCluster,
		Now:       noon, SweepInterval: 2 * time.Minute, Jitter: 0.5,
		Connection: Connection{BrokerID: "nats", Engine: v1alpha1.EngineNATS},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

// comparedAt sets a history in which the queue was last compared, and matched its spec, at a time.
func comparedAt(when time.Time) func(*Observation) {
	return func(o *Observation) {
		o.History.Comparison = Comparison{
			BrokerID: o.Connection.BrokerID, Desired: DesiredQueue(o.Queue, &o.Effective, o.ClusterID), Expires: when.Add(withJitter(o.SweepInterval, o.Jitter)),
		}
	}
}

// decideAll executes all actions and returns them with the final decision.
func decideAll(t *testing.T, o *Observation, execute func(Action) ActionResult) ([]Action, Decision) {
	t.Helper()
	var actions []Action
	for {
		d := Decide(*o)
		if d.Action == ActionNone {
			return actions, d
		}
		actions = append(actions, d.Action)
		require.True(t, len(actions) <= 20, "the actions do not end: %v", actions)
		if d.Action == ActionAddFinalizer {
			o.Queue.Finalizers = []string{v1alpha1.QueueFinalizer}
		}
		o.Apply(d.Action, execute(d.Action))
	}
}

// conflictOnce returns the answers of a broker whose queue belongs to another owner until that is known to be removed.
func conflictOnce(owner broker.QueueOwner) func(Action) ActionResult {
	lookedUp := false
	return func(action Action) ActionResult {
		lookedUp = lookedUp || action == ActionLookUpOwner
		if action == ActionEnsureQueue && !lookedUp {
			return ActionResult{Err: fmt.Errorf("ensuring: %w", &broker.OwnerConflictError{Queue: "mail", Owner: owner})}
		}
		return ActionResult{}
	}
}

func TestActionsOfALiveQueue(t *testing.T) {
	resultOf := func(special Action, result ActionResult) func(Action) ActionResult {
		return func(action Action) ActionResult {
			if action == special {
				return result
			}
			return ActionResult{}
		}
	}
	failAction := func(failing Action, err error) func(Action) ActionResult {
		return resultOf(failing, ActionResult{Err: err})
	}
	missingOnce := func(first Action) func(Action) ActionResult {
		isCreated := false
		return func(action Action) (result ActionResult) {
			if action == first && !isCreated {
				isCreated, result.Err = true, broker.Errorf(broker.ClassNotFound, "no such queue")
			}
			return result
		}
	}
	noErrors := failAction(ActionNone, nil)
	with := func(changes ...func(*Observation)) Observation {
		return unobserved(append([]func(*Observation){comparedAt(noon.Add(-time.Minute))}, changes...)...)
	}
	sweepDue := unobserved(comparedAt(noon.Add(-2 * time.Minute)))
	deletedOwner := broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: testCluster}
	neverFree, conflict := &broker.OwnerConflictError{Owner: deletedOwner}, conflictOnce(deletedOwner)
	ownerExists := func(action Action) ActionResult { return ActionResult{OwnerExists: true, Err: conflict(action).Err} }
	read, compare := []Action{ActionReadStats}, []Action{ActionReadStats, ActionEnsureQueue}
	rescue := slices.Concat(compare, []Action{ActionRescueMessages, ActionReadStats})
	create := []Action{ActionReadStats, ActionAssertFresh, ActionEnsureQueue, ActionRescueMessages, ActionReadStats}
	createAgain := []Action{ActionReadStats, ActionEnsureQueue, ActionAssertFresh, ActionEnsureQueue, ActionRescueMessages, ActionReadStats}
	requeue := slices.Concat(compare, []Action{ActionRequeueDeadLetters, ActionReadStats})
	lookUp := slices.Concat(compare, []Action{ActionLookUpOwner})
	takeOver := slices.Concat(lookUp, compare)
	for name, row := range map[string]struct {
		observation  Observation
		execute      func(Action) ActionResult
		want         []Action
		wantReady    string
		wantInterval time.Duration
	}{
		"an unchanged queue is only read": {with(), noErrors, read, "True Ready", busyInterval},
		"a new Queue gets its finalizer before its queue": {
			unobserved(func(o *Observation) { o.Queue.Finalizers = nil }), missingOnce(ActionReadStats),
			slices.Concat([]Action{ActionAddFinalizer}, create), "True Ready", busyInterval,
		},
		"a queue that is deleted after it was read needs a Queue that exists": {unobserved(), missingOnce(ActionEnsureQueue), createAgain, "True Ready", busyInterval},
		"a lost queue is created again":                                       {with(), missingOnce(ActionReadStats), create, "True Ready", busyInterval},
		"a queue is compared after the sweep interval":                        {sweepDue, noErrors, compare, "True Ready", busyInterval},
		"a queue with messages is searched for stranded ones, and read again": {
			sweepDue, resultOf(ActionReadStats, ActionResult{Stats: broker.QueueStats{Delayed: 1}}), rescue, "True Ready", delayedInterval,
		},
		"a queue that was corrected is searched for stranded messages, and read again": {
			sweepDue, resultOf(ActionEnsureQueue, ActionResult{EnsureResult: broker.EnsureResult{Corrected: true}}), rescue, "True Ready", busyInterval,
		},
		"a changed spec is compared at once":                    {with(isSuspended), noErrors, compare, "True Suspended", busyInterval},
		"another broker is compared at once":                    {with(func(o *Observation) { o.Connection.BrokerID = "other" }), noErrors, compare, "True Ready", busyInterval},
		"retiring priorities are compared each time":            {with(func(o *Observation) { o.History.Comparison.Result.RetiringPriorities = []string{"low"} }), noErrors, compare, "True Ready", busyInterval},
		"dead letters are requeued once the owner is confirmed": {with(requesting(RequestRequeue)), noErrors, requeue, "True Ready", busyInterval},
		"the dead letters of another owner are not touched": {
			unobserved(requesting(RequestPurge)), failAction(ActionEnsureQueue, &broker.OwnerConflictError{}), compare, "False OwnedByOtherQueue", retryInterval,
		},
		"the queue of a removed owner in the namespace is taken over": {unobserved(), conflictOnce(deletedOwner), takeOver, "True Ready", busyInterval},
		"an owner in another namespace is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "other/old", Cluster: testCluster}), compare, "False OwnedByOtherQueue", retryInterval,
		},
		"an owner in another cluster is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: "another"}), compare, "False OwnedByOtherQueue", retryInterval,
		},
		"an owner that a version before v0.2 recorded is not looked up": {unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old"}), compare, "False OwnedByOtherQueue", retryInterval},
		"an owner that exists keeps its queue":                          {unobserved(), ownerExists, lookUp, "False OwnedByOtherQueue", retryInterval},
		"a queue that cannot be taken over is in conflict":              {unobserved(), failAction(ActionEnsureQueue, neverFree), takeOver, "False OwnedByOtherQueue", retryInterval},
		"a refused configuration is retried":                            {unobserved(), failAction(ActionEnsureQueue, broker.Errorf(broker.ClassInvalid, "too old")), compare, "False RefusedByBroker", retryInterval},
		"a request that times out is repeated":                          {with(), failAction(ActionReadStats, broker.Errorf(broker.ClassUnreachable, "timeout")), read, "False ConnectionFailed", retryInterval},
		"a lost connection is checked again later":                      {with(), failAction(ActionReadStats, fmt.Errorf("reading: %w", connectionError{errors.New("x")})), read, "False SecretNotFound", reconnectInterval},
		"without a connection, no request is sent to the broker":        {unobserved(withoutConnection(v1alpha1.ReasonNoBroker)), noErrors, nil, "False NoBroker", reconnectInterval},
		"a new Queue is pending while its broker is being connected":    {unobserved(func(o *Observation) { o.Connection.Connecting = true }), noErrors, nil, "Unknown Pending", 0},
	} {
		t.Run(name, func(t *testing.T) {
			actions, d := decideAll(t, &row.observation, row.execute)
			require.Equal(t, row.want, actions)
			require.Equal(t, row.wantReady, conditionStates(&d.Status)[v1alpha1.ConditionReady])
			require.True(t, d.RequeueAfter == row.wantInterval, "reconciled again after %s, want %s", d.RequeueAfter, row.wantInterval)
		})
	}
}

func TestAProcessedRequestIsRemovedEvenIfTheBrokerIsLost(t *testing.T) {
	o := observed(requesting(RequestPurge), func(o *Observation) { o.Stats.DeadLetters = 3 })
	o.Apply(ActionPurgeDeadLetters, ActionResult{})
	o.Apply(ActionReadStats, ActionResult{Err: broker.Errorf(broker.ClassUnreachable, "timeout")})
	d := Decide(o)
	require.True(t, d.RemoveDeadLetterRequest && d.CompletionEvent.Reason == "DeadLettersPurged", "%+v", d)
	require.Equal(t, "Purged 3 dead letters", d.CompletionEvent.Message)
}

func TestARequeueContinuesUntilItHasProcessedEachDeadLetterAndNamesOneThatStays(t *testing.T) {
	kept := &broker.KeptDeadLetterError{Err: broker.Errorf(broker.ClassInvalid, "the dead letter 7 has only the beginning of its payload")}
	d := Decide(unobserved(comparedAt(noon), requesting(RequestRequeue)))
	require.True(t, d.Action == ActionReadStats && d.MaxStatsAge == 0, "stats of %s count the dead letters", d.MaxStatsAge)
	for i, part := range []struct {
		result       ActionResult
		want         RequeueProgress
		wantReady    string
		wantInterval time.Duration
	}{
		{ActionResult{Requeued: RequeuedPart{Requeued: 2, Processed: 3, Last: 7, TimedOut: true}, Err: fmt.Errorf("requeueing: %w", kept)}, RequeueProgress{Left: 9}, "True Ready", continueInterval},
		{ActionResult{Requeued: RequeuedPart{Requeued: 1, Processed: 2, Last: 9}, Err: broker.Errorf(broker.ClassUnreachable, "timeout")}, RequeueProgress{After: 7, Left: 6, Requeued: 2, Kept: kept}, "False ConnectionFailed", retryInterval},
		{ActionResult{Requeued: RequeuedPart{Requeued: 5, Processed: 5, Last: 13}}, RequeueProgress{After: 7, Left: 5, Requeued: 3, Kept: kept}, "True Ready", busyInterval},
	} {
		// Workers bury the requeued messages again.
		o := observed(requesting(RequestRequeue), func(o *Observation) { o.History, o.Stats.DeadLetters = d.History, 9 })
		d = Decide(o)
		require.True(t, d.Action == ActionRequeueDeadLetters && d.Requeue == part.want, "part %d: %s of %+v", i, d.Action, d.Requeue)
		o.Apply(d.Action, part.result)
		o.Apply(ActionReadStats, ActionResult{})
		d = Decide(o)
		require.Equal(t, part.wantReady, conditionStates(&d.Status)[v1alpha1.ConditionReady])
		require.True(t, d.RequeueAfter == part.wantInterval && d.RemoveDeadLetterRequest == (i == 2), "part %d: %+v", i, d)
	}
	require.True(t, d.CompletionEvent.Type == "Warning" && d.History.Requeue == RequeueProgress{}, "%+v", d)
	require.Equal(t, "Requeued 8 dead letters; not all: the dead letter 7 has only the beginning of its payload", d.CompletionEvent.Message)
}

func TestAPostponedStatusIsRetried(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{0: retryInterval, busyInterval: busyInterval, time.Minute: retryInterval} {
		d := Decision{RequeueAfter: after}
		d.PostponeStatus()
		require.True(t, d.RequeueAfter == want, "%s becomes %s, want %s", after, d.RequeueAfter, want)
	}
}

func TestAQueueWithoutAConsumerIsRepairedAtOnce(t *testing.T) {
	for title, broken := range map[string]broker.QueueStats{
		"a missing part":               {Ready: 3, Missing: []string{"default"}},
		"a message that was not moved": {Ready: 3, Overdue: true},
	} {
		o, stats := unobserved(comparedAt(noon)), broken
		actions, _ := decideAll(t, &o, func(action Action) (result ActionResult) {
			if action == ActionEnsureQueue {
				stats, result.EnsureResult.Corrected = broker.QueueStats{Ready: 3}, true
			}
			if action == ActionReadStats {
				result.Stats = stats
			}
			return result
		})
		want := []Action{ActionReadStats, ActionEnsureQueue, ActionRescueMessages, ActionReadStats}
		require.True(t, slices.Equal(actions, want), "%s: %v", title, actions)
	}
}

var testCluster = broker.ClusterID("test")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func durationOf(d time.Duration) *v1alpha1.Duration {
	return &v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
}

// newQueue returns a Queue named mail of generation 3.
func newQueue(changes ...func(*v1alpha1.Queue)) *v1alpha1.Queue {
	q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{
		Name: "mail", Namespace: "ns", UID: "1", Generation: 3, CreationTimestamp: metav1.NewTime(noon),
	}}
	for _, change := range changes {
		change(q)
	}
	return q
}

func TestDesiredQueue(t *testing.T) {
	settings := func(s v1alpha1.QueueSettings) v1alpha1.QueueEffective {
		return v1alpha1.QueueEffective{QueueSettings: s}
	}
	lowAndHigh := []v1alpha1.QueuePriority{{Name: "low", Share: v1alpha1.Share{Weight: 1}}, {Name: "high", Share: v1alpha1.Share{Weight: 9}}}
	low, high := broker.Priority{Name: "low", Weight: 1}, broker.Priority{Name: "high", Weight: 9}
	for name, row := range map[string]struct {
		queue     func(*v1alpha1.Queue)
		effective v1alpha1.QueueEffective
		want      func(*broker.QueueConfig)
	}{
		"the defaults":                     {},
		"another name on the broker":       {queue: func(q *v1alpha1.Queue) { q.Spec.Name = "post" }, want: func(w *broker.QueueConfig) { w.Name, w.AdoptsUnowned = "post", false }},
		"the name that the status records": {queue: func(q *v1alpha1.Queue) { q.Status.Name = "mail" }, want: func(w *broker.QueueConfig) { w.Name, w.AdoptsUnowned = "mail", false }},
		"a broker of the namespace": {
			queue:     func(q *v1alpha1.Queue) { q.Spec.Name = "post" },
			effective: settings(v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{}}),
			want:      func(w *broker.QueueConfig) { w.Name = "post" },
		},
		"limits": {
			queue: func(q *v1alpha1.Queue) {
				q.Spec.MaxInFlight, q.Spec.MaxBacklog, q.Spec.Lease = new(int32(5)), new(int64(9)), durationOf(time.Minute)
				q.Spec.MessageTimeout, q.Spec.MaxAge = durationOf(2*time.Minute), durationOf(time.Hour)
			},
			want: func(w *broker.QueueConfig) {
				w.MaxInFlight, w.MaxBacklog, w.Lease, w.JobTimeout, w.MaxAge = 5, 9, time.Minute, 2*time.Minute, time.Hour
			},
		},
		"a rate limit without per and burst": {
			effective: settings(v1alpha1.QueueSettings{RateLimit: &v1alpha1.RateLimit{Limit: 10}}),
			want:      func(w *broker.QueueConfig) { w.RateLimit = &broker.RateLimit{Limit: 10, Per: time.Second, Burst: 10} },
		},
		"a whole rate limit": {
			effective: settings(v1alpha1.QueueSettings{RateLimit: &v1alpha1.RateLimit{Limit: 10, Per: durationOf(time.Minute), Burst: new(int32(30))}}),
			want:      func(w *broker.QueueConfig) { w.RateLimit = &broker.RateLimit{Limit: 10, Per: time.Minute, Burst: 30} },
		},
		"an initial delay beyond the default maximum": {
			effective: settings(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{Backoff: durationOf(time.Hour)}}),
			want:      func(w *broker.QueueConfig) { w.Retry.InitialDelay, w.Retry.MaxDelay = time.Hour, time.Hour },
		},
		"both delays, and retries, which count without the first attempt": {
			effective: settings(v1alpha1.QueueSettings{Retry: &v1alpha1.Retry{
				Backoff: durationOf(2 * time.Second), MaxBackoff: durationOf(3 * time.Second), Limit: new(int32(1000)), Factor: new(v1alpha1.Number("1.5")),
			}}),
			want: func(w *broker.QueueConfig) {
				w.Retry.InitialDelay, w.Retry.MaxDelay, w.Retry.MaxAttempts, w.Retry.MultiplierPercent = 2*time.Second, 3*time.Second, 1001, 150
			},
		},
		"no dead letters": {
			effective: settings(v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0))}}),
			want:      func(w *broker.QueueConfig) { w.DeadLetter.Enabled = false },
		},
		"priorities keep their order": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Priorities = lowAndHigh },
			want:  func(w *broker.QueueConfig) { w.Priorities = []broker.Priority{low, high} },
		},
		"strict priorities are sorted by weight": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Priorities, q.Spec.StrictPriority = lowAndHigh, true },
			want:  func(w *broker.QueueConfig) { w.Priorities = []broker.Priority{high, low} },
		},
		"storage": {
			queue: func(q *v1alpha1.Queue) {
				placement := &v1alpha1.QueuePlacement{Cluster: "eu", Tags: []string{"disk:fast"}}
				q.Spec.Storage = &v1alpha1.QueueStorage{Replicas: new(int32(5)), Type: v1alpha1.StorageMemory, Placement: placement}
			},
			want: func(w *broker.QueueConfig) {
				placement := &broker.Placement{Cluster: "eu", Tags: []string{"disk:fast"}}
				w.Storage = broker.StorageConfig{Replicas: 5, Type: broker.StorageMemory, Placement: placement}
			},
		},
		"drift that is only reported": {queue: func(q *v1alpha1.Queue) { q.Spec.Drift = v1alpha1.DriftWarn }, want: func(w *broker.QueueConfig) { w.Drift = broker.DriftWarn }},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue()
			if row.queue != nil {
				row.queue(q)
			}
			want := broker.DefaultQueueConfig("ns_mail_" + testCluster)
			want.Owner = broker.QueueOwner{UID: "1", Name: "ns/mail", Cluster: testCluster}
			want.AdoptsUnowned = true // nobody else can choose the name
			if row.want != nil {
				row.want(&want)
			}
			got := DesiredQueue(q, &row.effective, testCluster)
			require.Equal(t, want, got)
			require.NoError(t, got.Validate())
		})
	}
}

func TestValidateReturnsTheInvalidFields(t *testing.T) {
	q := newQueue(func(q *v1alpha1.Queue) {
		q.UID = ""
		q.Spec.MaxInFlight = new(int32(1))
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "low", Share: v1alpha1.Share{Weight: 1}}, {Name: "high", Share: v1alpha1.Share{Weight: 9}}}
		q.Spec.RateLimit = &v1alpha1.RateLimit{Limit: 1_000_001}
	})
	var got []string
	for _, err := range Validate(q) {
		got = append(got, err.Field)
	}
	require.Equal(t, []string{"spec.maxInFlight", "spec.rateLimit"}, got)
	errs := Validate(newQueue())
	require.True(t, len(errs) == 0, "the defaults are refused: %v", errs)
}

func TestWarnings(t *testing.T) {
	two := []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 2}}, {Name: "low", Share: v1alpha1.Share{Weight: 1}}}
	for name, row := range map[string]struct {
		spec v1alpha1.QueueSpec
		want []string
	}{
		"the defaults":                {v1alpha1.QueueSpec{}, nil},
		"asynq":                       {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}}}, []string{"spec.broker.engine: "}},
		"maxInFlight with priorities": {v1alpha1.QueueSpec{Priorities: two, MaxInFlight: new(int32(4))}, []string{"spec.maxInFlight: each priority gets a share"}},
		"strict priorities":           {v1alpha1.QueueSpec{Priorities: two, StrictPriority: true}, []string{"spec.strictPriority: "}},
		"no dead letters":             {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(0))}}}, []string{"spec.deadLetter.maxEntries: messages"}},
		"limited dead letters":        {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{MaxEntries: new(int64(5))}}}, []string{"spec.deadLetter.maxEntries: the oldest"}},
		"expiring dead letters":       {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(time.Hour)}}}, []string{"spec.deadLetter.retention: "}},
		"one replica":                 {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(1))}}, []string{"spec.storage.replicas: "}},
		"storage in memory":           {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Type: v1alpha1.StorageMemory}}, []string{"spec.storage.type: "}},
		"three replicas on disk":      {v1alpha1.QueueSpec{Storage: &v1alpha1.QueueStorage{Replicas: new(int32(3)), Type: v1alpha1.StorageFile}}, nil},
		"dead letters without limits": {v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{Retention: durationOf(0)}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assertPrefixes(t, Warnings(newQueue(func(q *v1alpha1.Queue) { q.Spec = row.spec })), row.want)
		})
	}
}

func TestUpdateWarnings(t *testing.T) {
	before := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Broker = &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}
		q.Spec.Priorities = []v1alpha1.QueuePriority{{Name: "high"}, {Name: "low"}}
	})
	after := before.DeepCopy()
	assertPrefixes(t, UpdateWarnings(before, after), nil)
	after.Spec.Priorities, after.Spec.MaxBacklog = after.Spec.Priorities[:1], new(int64(9))
	assertPrefixes(t, UpdateWarnings(before, after), []string{"spec.priorities: low stays on the broker"})
	assertPrefixes(t, UpdateWarnings(after, after), nil)
}

// Each field is in use or not, and enforced or not. The API server sets the lease, so the default is no request.
func TestAFieldInUseThatNothingEnforcesIsReported(t *testing.T) {
	used := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Lease, q.Spec.MaxBacklog, q.Spec.MaxAge = durationOf(time.Minute), new(int64(9)), durationOf(time.Hour)
		q.Spec.Results = &v1alpha1.Results{MaxBytes: new(int64(1 << 20))}
	})
	unused := newQueue(func(q *v1alpha1.Queue) {
		q.Spec.Lease, q.Spec.Results = durationOf(broker.DefaultQueueConfig("").Lease), &v1alpha1.Results{}
	})
	for title, row := range map[string]struct {
		queue *v1alpha1.Queue
		by    broker.Enforcer
		want  []string
	}{
		"in use":               {used, broker.NotEnforced, []string{"lease", "maxAge", "maxBacklog", "results.maxBytes"}},
		"in use and enforced":  {used, broker.EnforcedByBroker, nil},
		"not in use":           {unused, broker.NotEnforced, nil},
		"not in use, enforced": {unused, broker.EnforcedByBroker, nil},
	} {
		capabilities := broker.Capabilities{}
		for _, field := range []broker.QueueField{broker.FieldMaxBacklog, broker.FieldMaxAge, broker.FieldLease, broker.FieldDelayed, broker.FieldResultsSize} {
			capabilities[field] = broker.Enforcement{By: row.by, Message: "no"}
		}
		var warnings, missing []string
		for _, field := range row.want {
			warnings, missing = append(warnings, "spec."+field+": not enforced: no"), append(missing, field+" (no)")
		}
		for range 20 { // the fields are in a map
			got := UnenforcedFieldWarnings(row.queue, capabilities)
			require.True(t, slices.Equal(got, warnings), "%s: warnings %q, want %q", title, got, warnings)
			o := observed(func(o *Observation) { o.Queue = row.queue })
			got = unenforcedFields(&o, &broker.EnsureResult{Enforcement: capabilities})
			got = slices.DeleteFunc(got, func(field string) bool { return row.queue == unused && field == "lease (no)" })
			require.True(t, slices.Equal(got, missing), "%s: missing %q, want %q", title, got, missing)
		}
	}
}

func assertPrefixes(t *testing.T, got, want []string) {
	t.Helper()
	require.True(t, slices.EqualFunc(got, want, strings.HasPrefix), "%q, want %q", got, want)
}

// engineIndependent are the fields of a spec in which engines cannot differ, and why.
var engineIndependent = map[string]string{
	"broker":         "selects the engine",
	"name":           "each engine has names",
	"deletionPolicy": "the operator implements it",
	"drift":          "the operator implements it",
	"strictPriority": "applies only with priorities",
}

// A field in neither list would have no reported enforcement.
func TestEngineReportsEnforcementOfEachFieldOfTheSpec(t *testing.T) {
	enforceable := fieldsInUse(newQueue(), &v1alpha1.QueueEffective{})
	var found []string
	for _, path := range fieldPaths(reflect.TypeFor[v1alpha1.QueueSpec](), "", enforceable) {
		_, isEnforceable := enforceable[broker.QueueField(path)]
		_, isIndependent := engineIndependent[path]
		require.True(t, isEnforceable != isIndependent, "spec.%s: in fieldsInUse and in engineIndependent: %t", path, isEnforceable)
		found = append(found, path)
	}
	for field := range enforceable {
		require.True(t, field == broker.FieldDelayed || slices.Contains(found, string(field)), "the spec has no field %s", field)
	}
	for field := range engineIndependent {
		require.True(t, slices.Contains(found, field), "the spec has no field %s", field)
	}
}

// fieldPaths returns the paths of the fields of a struct. It descends into a field of which only parts are enforceable.
func fieldPaths(of reflect.Type, within string, enforceable map[broker.QueueField]bool) []string {
	var all []string
	for field := range of.Fields() {
		if field.Anonymous {
			all = append(all, fieldPaths(field.Type, within, enforceable)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := within + name
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		isBelow := func(field broker.QueueField) bool { return strings.HasPrefix(string(field), path+".") }
		if slices.ContainsFunc(slices.Collect(maps.Keys(enforceable)), isBelow) {
			all = append(all, fieldPaths(kind, path+".", enforceable)...)
			continue
		}
		all = append(all, path)
	}
	return all
}

func TestEachEngineReportsAllCapabilities(t *testing.T) {
	nats := require.Call(jetstream.Connect(t.Context(), broker.Credentials{URL: natstest.Start(t).ClientURL()})).Succeeds(t)
	t.Cleanup(nats.Disconnect)
	want := slices.Sorted(maps.Keys(fieldsInUse(newQueue(), &v1alpha1.QueueEffective{})))
	for engine, capabilities := range map[v1alpha1.Engine]broker.Capabilities{
		v1alpha1.EngineNATS: nats.Capabilities(), v1alpha1.EngineAsynq: (*asynq.Engine)(nil).Capabilities(),
	} {
		got := slices.Sorted(maps.Keys(capabilities))
		require.True(t, slices.Equal(got, want), "%s reports %v, want %v", engine, got, want)
		for field, capability := range capabilities {
			require.True(t, capability.By != broker.NotEnforced || capability.Message != "", "%s does not say why %s is not enforced", engine, field)
		}
	}
}
