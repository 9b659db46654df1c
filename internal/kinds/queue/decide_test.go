package queue

import (
	"errors"
	"fmt"
	"slices"
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
		"a changed spec is compared at once": {with(isSuspended), noErrors, compare, "True Suspended", busyInterval},
		"another broker is compared at once": {with(func(o *Observation) { o.Connection.BrokerID = "other" }), noErrors, compare, "True Ready", busyInterval},
		"retiring priorities are compared each time": {
			with(func(o *Observation) { o.History.Comparison.Result.RetiringPriorities = []string{"low"} }), noErrors, compare, "True Ready", busyInterval,
		},
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
		"an owner that a version before v0.2 recorded is not looked up": {
			unobserved(), conflictOnce(broker.QueueOwner{UID: "0", Name: "ns/old"}), compare, "False OwnedByOtherQueue", retryInterval,
		},
		"an owner that exists keeps its queue":             {unobserved(), ownerExists, lookUp, "False OwnedByOtherQueue", retryInterval},
		"a queue that cannot be taken over is in conflict": {unobserved(), failAction(ActionEnsureQueue, neverFree), takeOver, "False OwnedByOtherQueue", retryInterval},
		"a refused configuration is retried": {
			unobserved(), failAction(ActionEnsureQueue, broker.Errorf(broker.ClassInvalid, "too old")), compare, "False RefusedByBroker", retryInterval,
		},
		"a request that times out is repeated": {
			with(), failAction(ActionReadStats, broker.Errorf(broker.ClassUnreachable, "timeout")), read, "False ConnectionFailed", retryInterval,
		},
		"a lost connection is checked again later": {
			with(), failAction(ActionReadStats, fmt.Errorf("reading: %w", connectionError{errors.New("x")})), read, "False SecretNotFound", reconnectInterval,
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
	require.True(t, d.RemoveDeadLetterRequest && d.CompletionEvent.Reason == "DeadLettersPurged", "%+v", d)
	require.Equal(t, "Purged 3 dead letters", d.CompletionEvent.Message)
}

func TestADeadLetterThatStaysIsNamedAndDoesNotKeepTheRequest(t *testing.T) {
	o := observed(requesting(RequestRequeue))
	err := &broker.KeptDeadLetterError{Err: broker.Errorf(broker.ClassInvalid, "the dead letter 7 has only the beginning of its payload")}
	o.Apply(ActionRequeueDeadLetters, ActionResult{Requeued: 2, Err: fmt.Errorf("requeueing: %w", err)})
	o.Apply(ActionReadStats, ActionResult{})
	d := Decide(o)
	require.True(t, d.RemoveDeadLetterRequest && d.CompletionEvent.Type == "Warning", "%+v", d.CompletionEvent)
	require.Equal(t, "Requeued 2 dead letters; not all: the dead letter 7 has only the beginning of its payload", d.CompletionEvent.Message)
	require.Equal(t, "True Ready", conditionStates(&d.Status)[v1alpha1.ConditionReady])
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
