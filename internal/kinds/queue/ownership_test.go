package queue

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAQueueOwnsWhatItsBrokerConfirmedLast(t *testing.T) {
	own, other := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}, &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}
	on := func(b *v1alpha1.Broker) func(*Observation) { return func(o *Observation) { o.Effective.Broker = b } }
	unreachable := withoutConnection(v1alpha1.ReasonConnectionFailed)
	refused := failedWith(broker.Errorf(broker.ClassInvalid, "no"))
	for title, row := range map[string]struct {
		reconciliations [][]func(*Observation)
		broker          *v1alpha1.Broker
		want            bool
	}{
		"nothing before its first reconciliation":     {nil, own, false},
		"the queue that the broker compared":          {[][]func(*Observation){{on(own)}}, own, true},
		"the same while the broker does not answer":   {[][]func(*Observation){{on(own)}, {on(own), unreachable}}, own, true},
		"the same while the broker refuses a change":  {[][]func(*Observation){{on(own)}, {on(own), refused}}, own, true},
		"nothing if the broker has never answered":    {[][]func(*Observation){{on(own), unreachable}}, own, false},
		"nothing if the broker refused the queue":     {[][]func(*Observation){{on(own), refused}}, own, false},
		"nothing on another broker yet":               {[][]func(*Observation){{on(own)}}, other, false},
		"nothing on the operator's broker yet":        {[][]func(*Observation){{on(own)}}, nil, false},
		"nothing on another broker that is down":      {[][]func(*Observation){{on(own)}, {on(other), unreachable}}, other, false},
		"nothing if another Queue owns the queue":     {[][]func(*Observation){{on(own)}, {on(own), ownedBy(broker.QueueOwner{UID: "0"})}}, own, false},
		"nothing while it is unknown who owns it now": {[][]func(*Observation){{on(own), ownedBy(broker.QueueOwner{UID: "0"})}, {on(own), unreachable}}, own, false},
	} {
		t.Run(title, func(t *testing.T) {
			q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}}
			for _, changes := range row.reconciliations {
				o := observed(append(changes, func(o *Observation) { o.Queue.Status = q.Status })...)
				q.Status = Decide(o).Status
			}
			require.True(t, OwnsQueue(q, row.broker) == row.want, "owned: not %t; the status is %+v", row.want, q.Status)
		})
	}
}

func TestDeadLettersAreMovedOnlyToAQueueThatOwnsItsQueue(t *testing.T) {
	ownedQueue := func(changes ...func(*Observation)) *v1alpha1.Queue {
		o := observed(changes...)
		o.Queue.Status = Decide(o).Status
		return o.Queue
	}
	deleted := ownedQueue()
	deleted.DeletionTimestamp = new(metav1.NewTime(noon))
	for title, row := range map[string]struct {
		target *v1alpha1.Queue
		want   string
	}{
		"it owns its queue":      {ownedQueue(), ""},
		"being deleted":          {deleted, "is being deleted"},
		"not observed yet":       {newQueue(), "does not own"},
		"another Queue owns it":  {ownedQueue(ownedBy(broker.QueueOwner{UID: "0"})), "does not own"},
		"the broker is not seen": {ownedQueue(withoutConnection(v1alpha1.ReasonConnectionFailed)), "does not own"},
	} {
		problem := MoveTargetProblem(row.target)
		isRight := (problem == nil) == (row.want == "") && (problem == nil || strings.Contains(problem.Message, row.want))
		require.True(t, isRight, "%s: %v, want %q", title, problem, row.want)
	}
}

// Each answer of the broker that is an error, to each action, for a Queue that exists or is deleted.
func TestWhatAnErrorOfTheBrokerMeans(t *testing.T) {
	actions := []Action{
		ActionReadStats, ActionEnsureQueue, ActionRescueMessages, ActionRequeueDeadLetters, ActionPurgeDeadLetters, ActionMoveDeadLetters,
		ActionRejectMessages, ActionReleaseQueue, ActionDeleteQueue,
	}
	classes := []broker.ErrorClass{
		broker.ClassUnreachable, broker.ClassUnauthorized, broker.ClassInvalid, broker.ClassConflict, broker.ClassNotFound, broker.ClassUnknown,
	}
	for _, action := range actions {
		for _, class := range classes {
			for _, state := range []string{"alive", "alive and fresh", "deleted", "deleted and owned"} {
				o := observed(func(o *Observation) {
					o.EnsureResult, o.Rescued, o.IsFresh, o.IsOwner = nil, false, state == "alive and fresh", state == "deleted and owned"
					if strings.HasPrefix(state, "deleted") {
						o.Queue.DeletionTimestamp = new(metav1.NewTime(noon))
					}
				}, comparedAt(noon))
				o.Apply(action, ActionResult{Err: broker.Errorf(class, "no")})
				got := ""
				for name, is := range map[string]bool{
					"refused": o.BrokerError != nil, "unreachable": o.Unreachable != nil, "not found": o.NotFound, "not owner": o.NotOwner, "rescued": o.Rescued,
					"empty": o.IsOwner && action == ActionReadStats && o.Stats != nil,
				} {
					if is {
						got += name
					}
				}
				isMissing := state == "deleted and owned" && class == broker.ClassNotFound
				want := "unreachable"
				switch {
				case isMissing && action == ActionRescueMessages:
					want = "rescued"
				case isMissing && action == ActionReadStats:
					want = "empty"
				case isMissing && (action == ActionMoveDeadLetters || action == ActionPurgeDeadLetters):
					want = "refused"
				case strings.HasPrefix(state, "deleted") && (class == broker.ClassNotFound || class == broker.ClassConflict):
					want = "not owner"
				case class == broker.ClassNotFound && (action == ActionReadStats || action == ActionEnsureQueue && state == "alive"):
					want = "not found"
				case class == broker.ClassInvalid || class == broker.ClassConflict || class == broker.ClassNotFound:
					want = "refused"
				}
				require.True(t, got == want, "%s, %s, %s: it is %q, want %q", state, action, class, got, want)
				keepsStats := (action == ActionRequeueDeadLetters || action == ActionPurgeDeadLetters) && !strings.HasPrefix(want, "not owner") && !isMissing
				hasStats := o.Stats != nil
				require.True(t, hasStats == (keepsStats || want == "empty"), "%s, %s, %s: stats are kept: %t", state, action, class, hasStats)
				comparesAgain := action == ActionRescueMessages || want == "refused" && !isMissing
				again := o.History.Comparison.BrokerID == ""
				require.True(t, again == comparesAgain, "%s, %s, %s: compared again at once: %t", state, action, class, again)
			}
		}
	}
}

// Messages may become dead letters, or be given up on, until a deletion has removed the last dead letter.
func TestADeletionRescuesAgainAfterItRemovedDeadLetters(t *testing.T) {
	for _, action := range []Action{ActionPurgeDeadLetters, ActionMoveDeadLetters} {
		o := deletedQueue(v1alpha1.DeletionRetain, v1alpha1.DeadLetterPurge)
		owned(broker.QueueStats{DeadLetters: 3})(&o)
		o.Apply(action, ActionResult{})
		require.True(t, !o.Rescued, "%s: nothing is rescued again", action)
	}
}
