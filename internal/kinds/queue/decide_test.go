package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
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
		if actions = append(actions, d.Action); len(actions) > 20 {
			t.Fatalf("the actions do not end: %v", actions)
		}
		if d.Action == ActionAddFinalizer {
			o.Queue.Finalizers = []string{v1alpha1.QueueFinalizer}
		}
		o.Apply(d.Action, execute(d.Action))
	}
}

// conflictOnce returns the answers of a broker whose queue belongs to another owner until that is
// known to be removed.
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

func ownerThatExists(execute func(Action) ActionResult) func(Action) ActionResult {
	return func(action Action) ActionResult {
		result := execute(action)
		result.OwnerExists = true
		return result
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
		attempts := 0
		return func(action Action) ActionResult {
			if action == first {
				attempts++
				if attempts == 1 {
					return ActionResult{Err: broker.Errorf(broker.ClassNotFound, "no such queue")}
				}
			}
			return ActionResult{}
		}
	}
	noErrors := failAction(ActionNone, nil)
	current := comparedAt(noon.Add(-time.Minute))
	for name, row := range map[string]struct {
		observation  Observation
		execute      func(Action) ActionResult
		want         []Action
		wantReady    string
		wantInterval time.Duration
	}{
		"an unchanged queue is only read": {
			unobserved(current), noErrors, []Action{ActionReadStats}, "True Ready", busyInterval,
		},
		"a new Queue gets its finalizer before its queue": {
			unobserved(func(o *Observation) { o.Queue.Finalizers = nil }), missingOnce(ActionReadStats),
			[]Action{ActionAddFinalizer, ActionReadStats, ActionAssertFresh, ActionEnsureQueue, ActionRescueMessages, ActionReadStats},
			"True Ready", busyInterval,
		},
		"a queue that is deleted after it was read is created again only if the Queue still exists": {
			unobserved(), missingOnce(ActionEnsureQueue),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionAssertFresh, ActionEnsureQueue, ActionRescueMessages, ActionReadStats},
			"True Ready", busyInterval,
		},
		"a lost queue is created again": {
			unobserved(current), missingOnce(ActionReadStats),
			[]Action{ActionReadStats, ActionAssertFresh, ActionEnsureQueue, ActionRescueMessages, ActionReadStats},
			"True Ready", busyInterval,
		},
		"a queue is compared after the sweep interval": {
			unobserved(comparedAt(noon.Add(-2 * time.Minute))), noErrors,
			[]Action{ActionReadStats, ActionEnsureQueue},
			"True Ready", busyInterval,
		},
		"a queue with messages is searched for stranded ones, and read again": {
			unobserved(comparedAt(noon.Add(-2 * time.Minute))), resultOf(ActionReadStats, ActionResult{Stats: broker.QueueStats{Delayed: 1}}),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionRescueMessages, ActionReadStats},
			"True Ready", delayedInterval,
		},
		"a queue that was corrected is searched for stranded messages, and read again": {
			unobserved(comparedAt(noon.Add(-2 * time.Minute))), resultOf(ActionEnsureQueue, ActionResult{EnsureResult: broker.EnsureResult{Corrected: true}}),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionRescueMessages, ActionReadStats},
			"True Ready", busyInterval,
		},
		"a changed spec is compared at once": {
			unobserved(current, func(o *Observation) { o.Queue.Spec.Suspend = true }), noErrors,
			[]Action{ActionReadStats, ActionEnsureQueue},
			"True Suspended", busyInterval,
		},
		"another broker is compared at once": {
			unobserved(current, func(o *Observation) { o.Connection.BrokerID = "other" }), noErrors,
			[]Action{ActionReadStats, ActionEnsureQueue},
			"True Ready", busyInterval,
		},
		"retiring priorities are compared each time": {
			unobserved(current, func(o *Observation) { o.History.Comparison.Result.RetiringPriorities = []string{"low"} }), noErrors,
			[]Action{ActionReadStats, ActionEnsureQueue},
			"True Ready", busyInterval,
		},
		"dead letters are requeued once the owner is confirmed": {
			unobserved(current, requesting(RequestRequeue)), noErrors,
			[]Action{ActionReadStats, ActionEnsureQueue, ActionRequeueDeadLetters, ActionReadStats},
			"True Ready", busyInterval,
		},
		"the dead letters of another owner are not touched": {
			unobserved(requesting(RequestPurge)), failAction(ActionEnsureQueue, &broker.OwnerConflictError{}),
			[]Action{ActionReadStats, ActionEnsureQueue},
			"False OwnedByOtherQueue", retryInterval,
		},
		"the queue of a removed owner in the namespace is taken over": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: testCluster}),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionLookUpOwner, ActionReadStats, ActionEnsureQueue},
			"True Ready", busyInterval,
		},
		"an owner in another namespace is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "other/old", Cluster: testCluster}),
			[]Action{ActionReadStats, ActionEnsureQueue},
			"False OwnedByOtherQueue", retryInterval,
		},
		"an owner in another cluster is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: "another"}),
			[]Action{ActionReadStats, ActionEnsureQueue},
			"False OwnedByOtherQueue", retryInterval,
		},
		"an owner that a version before v0.2 recorded is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old"}),
			[]Action{ActionReadStats, ActionEnsureQueue},
			"False OwnedByOtherQueue", retryInterval,
		},
		"an owner that exists keeps its queue": {
			unobserved(), ownerThatExists(conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: testCluster})),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionLookUpOwner},
			"False OwnedByOtherQueue", retryInterval,
		},
		"a queue that cannot be taken over is in conflict": {
			unobserved(), failAction(ActionEnsureQueue, &broker.OwnerConflictError{Owner: broker.QueueOwner{UID: "0", Name: "ns/old", Cluster: testCluster}}),
			[]Action{ActionReadStats, ActionEnsureQueue, ActionLookUpOwner, ActionReadStats, ActionEnsureQueue},
			"False OwnedByOtherQueue", retryInterval,
		},
		"a refused configuration is retried": {
			unobserved(), failAction(ActionEnsureQueue, broker.Errorf(broker.ClassInvalid, "too old")),
			[]Action{ActionReadStats, ActionEnsureQueue},
			"False RefusedByBroker", retryInterval,
		},
		"a request that times out is repeated": {
			unobserved(current), failAction(ActionReadStats, broker.Errorf(broker.ClassUnreachable, "timeout")),
			[]Action{ActionReadStats},
			"False ConnectionFailed", retryInterval,
		},
		"a lost connection is checked again later": {
			unobserved(current), failAction(ActionReadStats, fmt.Errorf("reading: %w", connectionError{errors.New("x")})),
			[]Action{ActionReadStats},
			"False SecretNotFound", reconnectInterval,
		},
		"without a connection, no request is sent to the broker": {
			unobserved(func(o *Observation) { o.Connection.Problem = &decision.Problem{Reason: v1alpha1.ReasonNoBroker} }), noErrors,
			nil, "False NoBroker", reconnectInterval,
		},
		"a new Queue is pending while its broker is being connected": {
			unobserved(func(o *Observation) { o.Connection.Connecting = true }), noErrors, nil, "Unknown Pending", 0,
		},
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
	if !d.RemoveDeadLetterRequest || d.CompletionEvent.Reason != "DeadLettersPurged" || d.CompletionEvent.Message != "Purged 3 dead letters" {
		t.Errorf("%+v", d)
	}
}

func TestADeadLetterThatStaysIsNamedAndDoesNotKeepTheRequest(t *testing.T) {
	o := observed(requesting(RequestRequeue))
	err := &broker.KeptDeadLetterError{Err: broker.Errorf(broker.ClassInvalid, "the dead letter 7 has only the beginning of its payload")}
	o.Apply(ActionRequeueDeadLetters, ActionResult{Requeued: 2, Err: fmt.Errorf("requeueing: %w", err)})
	o.Apply(ActionReadStats, ActionResult{})
	d := Decide(o)
	if !d.RemoveDeadLetterRequest || d.CompletionEvent.Type != "Warning" ||
		d.CompletionEvent.Message != "Requeued 2 dead letters; not all: the dead letter 7 has only the beginning of its payload" {
		t.Errorf("%+v", d.CompletionEvent)
	}
	require.Equal(t, "True Ready", conditionStates(&d.Status)[v1alpha1.ConditionReady])
}

func TestAPostponedStatusIsRetried(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{0: retryInterval, busyInterval: busyInterval, time.Minute: retryInterval} {
		d := Decision{RequeueAfter: after}
		d.PostponeStatus()
		require.True(t, d.RequeueAfter == want, "%s becomes %s, want %s", after, d.RequeueAfter, want)
	}
}

func TestJitterSpreadsComparisons(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: 90 * time.Second, 0.5: 2 * time.Minute, 1: 150 * time.Second} {
		got := withJitter(2*time.Minute, jitter)
		require.True(t, got == want, "jitter %g: %s, want %s", jitter, got, want)
	}
}

func TestAQueueWithoutAConsumerIsRepairedAtOnce(t *testing.T) {
	for title, broken := range map[string]func(*broker.QueueStats){
		"a missing part":               func(s *broker.QueueStats) { s.Missing = []string{"default"} },
		"a message that was not moved": func(s *broker.QueueStats) { s.Overdue = true },
	} {
		t.Run(title, func(t *testing.T) {
			o := unobserved(comparedAt(noon))
			isBroken := true
			actions, _ := decideAll(t, &o, func(action Action) ActionResult {
				var result ActionResult
				switch action {
				case ActionEnsureQueue:
					isBroken, result.EnsureResult.Corrected = false, true
				case ActionReadStats:
					if result.Stats.Ready = 3; isBroken {
						broken(&result.Stats)
					}
				}
				return result
			})
			want := []Action{ActionReadStats, ActionEnsureQueue, ActionRescueMessages, ActionReadStats}
			require.Equal(t, want, actions)
		})
	}
}
