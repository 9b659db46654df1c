package queue

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
)

// deletedQueue returns an observation of a deleted Queue before any request to its broker.
func deletedQueue(policy v1alpha1.DeletionPolicy, deadLetters v1alpha1.DeadLetterAction) Observation {
	return Observation{
		Queue: newQueue(func(q *v1alpha1.Queue) {
			q.DeletionTimestamp = new(metav1.NewTime(noon))
			q.Spec.DeletionPolicy = policy
		}),
		Effective: v1alpha1.QueueEffective{QueueSettings: v1alpha1.QueueSettings{DeadLetter: &v1alpha1.DeadLetter{OnDelete: deadLetters}}},
	}
}

// owned sets the observation after the broker has confirmed the owner.
func owned(stats broker.QueueStats) func(*Observation) {
	return func(o *Observation) { o.IsOwner, o.Rescued, o.Stats = true, true, &stats }
}

func withWorkerPools(names ...string) func(*Observation) {
	return func(o *Observation) { o.Deletion.WorkerPools = names }
}

func inTerminatingNamespace(o *Observation) { o.Deletion.NamespaceTerminating = true }

func withUnreachableBroker(o *Observation) {
	o.Unreachable = &decision.Problem{Reason: v1alpha1.ReasonConnectionFailed, Message: "connection refused"}
}

func TestDeletionTakesOneActionAtATime(t *testing.T) {
	const retain, drain, purge = v1alpha1.DeletionRetain, v1alpha1.DeletionDrain, v1alpha1.DeletionPurge
	const block, move = v1alpha1.DeadLetterBlock, v1alpha1.DeadLetterMove
	type changes = []func(*Observation)
	empty := owned(broker.QueueStats{})
	messages := owned(broker.QueueStats{Ready: 2, InFlight: 1})
	deadLetters := owned(broker.QueueStats{DeadLetters: 3})
	for name, row := range map[string]struct {
		policy      v1alpha1.DeletionPolicy
		deadLetters v1alpha1.DeadLetterAction
		changes     changes
		want        Action
		wantBlocked string
	}{
		"Retain claims the queue first":                                      {retain, block, nil, ActionEnsureQueue, ""},
		"Drain rejects new messages first":                                   {drain, block, changes{withWorkerPools("a")}, ActionRejectMessages, ""},
		"Purge waits for WorkerPools first":                                  {purge, block, changes{withWorkerPools("a")}, ActionNone, "WorkerPools still refer to the Queue: a"},
		"Purge then rejects new messages":                                    {purge, block, nil, ActionRejectMessages, ""},
		"Purge rescues messages after rejecting new ones":                    {purge, block, changes{func(o *Observation) { o.IsOwner = true }}, ActionRescueMessages, ""},
		"Purge reads the stats after rescuing messages":                      {purge, block, changes{empty, func(o *Observation) { o.Stats = nil }}, ActionReadStats, ""},
		"Drain waits until the queue is empty":                               {drain, block, changes{messages, withWorkerPools("a")}, ActionNone, "3 messages left"},
		"Drain reports that a suspended queue does not drain":                {drain, block, changes{messages, func(o *Observation) { o.Queue.Spec.Suspend = true }}, ActionNone, "suspend keeps workers"},
		"Drain then waits for WorkerPools":                                   {drain, block, changes{empty, withWorkerPools("a")}, ActionNone, ": a"},
		"Retain waits for WorkerPools":                                       {retain, block, changes{messages, withWorkerPools(strings.Split("abcdefg", "")...)}, ActionNone, "a, b, c, d, e and 2 more"},
		"dead letters block the deletion":                                    {retain, block, changes{deadLetters}, ActionNone, "3 dead letters"},
		"dead letters are moved":                                             {retain, move, changes{deadLetters}, ActionMoveDeadLetters, ""},
		"dead letters without a target block the deletion":                   {retain, move, changes{deadLetters, func(o *Observation) { o.Deletion.MoveProblem = MoveProblem("x", "not found") }}, ActionNone, `Queue "x" not found`},
		"dead letters are purged":                                            {drain, v1alpha1.DeadLetterPurge, changes{deadLetters}, ActionPurgeDeadLetters, ""},
		"a requested purge deletes dead letters":                             {drain, block, changes{deadLetters, requesting(RequestPurge)}, ActionPurgeDeadLetters, ""},
		"Retain releases the queue":                                          {retain, block, changes{messages}, ActionReleaseQueue, ""},
		"Purge deletes messages with the queue":                              {purge, block, changes{messages}, ActionDeleteQueue, ""},
		"Drain deletes the empty queue":                                      {drain, block, changes{empty}, ActionDeleteQueue, ""},
		"an unreachable broker blocks the deletion":                          {retain, block, changes{withUnreachableBroker}, ActionNone, `yardmaster.dev/abandon: "true"`},
		"an error of the broker blocks the deletion":                         {retain, block, changes{func(o *Observation) { o.BrokerError = broker.Errorf(broker.ClassInvalid, "too old") }}, ActionNone, "too old"},
		"in a terminating namespace, WorkerPools block the deletion":         {purge, block, changes{inTerminatingNamespace, withWorkerPools("a")}, ActionNone, ": a"},
		"in a terminating namespace, dead letters do not block the deletion": {retain, block, changes{inTerminatingNamespace, deadLetters}, ActionReleaseQueue, ""},
		"in a terminating namespace, messages do not block the deletion":     {drain, block, changes{inTerminatingNamespace, messages}, ActionReleaseQueue, ""},
		"in a terminating namespace, an unblocked deletion proceeds":         {purge, block, changes{inTerminatingNamespace, messages}, ActionDeleteQueue, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := deletedQueue(row.policy, row.deadLetters)
			for _, change := range row.changes {
				change(&o)
			}
			d := Decide(o)
			require.True(t, d.Action == row.want && !d.RemoveFinalizer, "action %q, finalizer removed: %t", d.Action, d.RemoveFinalizer)
			if row.wantBlocked == "" {
				return
			}
			blocked := findCondition(&d.Status, v1alpha1.ConditionBlocked)
			require.Equal(t, metav1.ConditionTrue, blocked.Status)
			require.Contains(t, blocked.Message, row.wantBlocked)
			require.True(t, d.RequeueAfter == blockedInterval, "the deletion is checked again after %s", d.RequeueAfter)
		})
	}
}

func TestDeletionCompletes(t *testing.T) {
	abandon := func(o *Observation) { o.Queue.Annotations = map[string]string{AnnotationAbandon: "true"} }
	for name, row := range map[string]struct {
		change      func(*Observation)
		wantMessage string
	}{
		"abandoned":                                            {func(o *Observation) { abandon(o); withUnreachableBroker(o) }, "without its broker"},
		"abandoned while connecting":                           {func(o *Observation) { abandon(o); o.Connection.Connecting = true }, "without its broker"},
		"another Queue owns the queue":                         {func(o *Observation) { o.NotOwner = true }, "has no queue"},
		"after the queue is deleted":                           {func(o *Observation) { o.Deleted = true }, "Deleted the queue"},
		"after the queue is released":                          {func(o *Observation) { o.Released = true }, "another Queue can take it over"},
		"the broker is unreachable in a terminating namespace": {func(o *Observation) { inTerminatingNamespace(o); withUnreachableBroker(o) }, "namespace is terminating"},
		"the connection has a problem in a terminating namespace": {
			func(o *Observation) { inTerminatingNamespace(o); withoutConnection(v1alpha1.ReasonSecretNotFound)(o) }, "namespace is terminating",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := deletedQueue(v1alpha1.DeletionPurge, v1alpha1.DeadLetterBlock)
			row.change(&o)
			d := Decide(o)
			require.True(t, d.Action == ActionNone && d.RemoveFinalizer, "%+v, want the finalizer removed", d)
			require.Contains(t, d.CompletionEvent.Message, row.wantMessage)
		})
	}
}

// brokerModel simulates a broker with one queue and the queue's users.
type brokerModel struct {
	Exists, Owned, Closed        bool
	Emptied                      bool // by an interrupted deletion: only the owner is left
	Messages, DeadLetters, Moved int64
	WorkerPools                  int
	Purged, Lost                 int64
}

// execute returns the result of an action on the model. An operator that is killed while it deletes the queue leaves the owner.
func (m *brokerModel) execute(action Action, killed bool) ActionResult {
	if !m.Exists {
		return ActionResult{Err: broker.Errorf(broker.ClassNotFound, "no such queue")}
	}
	if m.Emptied && (action == ActionReadStats || action == ActionRescueMessages) {
		return ActionResult{Err: broker.Errorf(broker.ClassNotFound, "no such queue")}
	}
	if action == ActionReadStats {
		return ActionResult{Stats: broker.QueueStats{Ready: m.Messages, DeadLetters: m.DeadLetters}}
	}
	if !m.Owned {
		return ActionResult{Err: &broker.OwnerConflictError{}}
	}
	switch action {
	case ActionRejectMessages:
		m.Closed = true
	case ActionMoveDeadLetters:
		n := min(m.DeadLetters, 2)
		m.DeadLetters, m.Moved = m.DeadLetters-n, m.Moved+n
	case ActionPurgeDeadLetters:
		m.Purged, m.DeadLetters = m.Purged+m.DeadLetters, 0
	case ActionReleaseQueue:
		m.Owned = false
	case ActionDeleteQueue:
		m.Lost += m.Messages + m.DeadLetters
		m.Messages, m.DeadLetters = 0, 0
		m.Exists, m.Emptied = killed, true
	}
	return ActionResult{}
}

// The content of the queue is random. The operator is killed at random between two actions.
func TestDeletionCompletesAndDeletesOnlyAsConfigured(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	policies := []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDrain, v1alpha1.DeletionPurge}
	deadLetterActions := []v1alpha1.DeadLetterAction{v1alpha1.DeadLetterMove, v1alpha1.DeadLetterPurge}
	for range 20_000 {
		model := &brokerModel{
			Exists: random.IntN(10) > 0, Owned: random.IntN(10) > 0,
			Messages: random.Int64N(5), DeadLetters: random.Int64N(7), WorkerPools: random.IntN(3),
		}
		initial := *model
		fresh := deletedQueue(policies[random.IntN(3)], deadLetterActions[random.IntN(2)])
		o, actions := fresh, []Action{}
		for {
			o.Deletion.WorkerPools = slices.Repeat([]string{"pool"}, model.WorkerPools)
			d := Decide(o)
			actions = append(actions, d.Action)
			if d.RemoveFinalizer {
				break
			}
			require.True(t, len(actions) <= 500, "%+v, %s: the deletion does not end: %v", initial, fresh.Queue.Spec.DeletionPolicy, actions)
			if d.Action == ActionNone { // blocked: workers and users make progress
				model.Messages, model.WorkerPools = max(0, model.Messages-1), max(0, model.WorkerPools-1)
				o = fresh
				continue
			}
			o.Apply(d.Action, model.execute(d.Action, random.IntN(3) == 0))
			if d.Action == ActionDeleteQueue && model.Exists || random.IntN(4) == 0 { // killed, or a second leader
				o = fresh
			}
		}
		assertDeleted(t, &initial, model, &fresh, actions)
	}
}

func assertDeleted(t *testing.T, initial, final *brokerModel, o *Observation, actions []Action) {
	t.Helper()
	policy, deadLetters := o.Queue.Spec.DeletionPolicy, o.Effective.DeadLetter.OnDelete
	if !initial.Exists || !initial.Owned {
		initial.WorkerPools, final.WorkerPools = 0, 0
		initial.Messages, final.Messages = 0, 0
		require.True(t, *initial == *final, "the queue %+v of another owner became %+v by %v", *initial, *final, actions)
		return
	}
	require.True(t, final.WorkerPools == 0, "the Queue was removed while WorkerPools referred to it: %v", actions)
	switch {
	case policy == v1alpha1.DeletionRetain && (!final.Exists || final.Owned || final.Closed || final.Lost > 0),
		policy != v1alpha1.DeletionRetain && final.Exists,
		policy == v1alpha1.DeletionDrain && final.Lost > 0,
		deadLetters == v1alpha1.DeadLetterMove && final.Moved != initial.DeadLetters,
		deadLetters == v1alpha1.DeadLetterPurge && final.Purged != initial.DeadLetters:
		t.Fatalf("%s, %s: %+v became %+v by %v", policy, deadLetters, *initial, *final, actions)
	}
}

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
	for title, row := range map[string]struct {
		change func(*Observation)
		want   string
	}{
		"it owns its queue":      {func(*Observation) {}, ""},
		"being deleted":          {func(o *Observation) { o.Queue.DeletionTimestamp = new(metav1.NewTime(noon)); withUnreachableBroker(o) }, "is being deleted"},
		"not observed yet":       {func(o *Observation) { o.Connection.Connecting = true }, "does not own"},
		"another Queue owns it":  {ownedBy(broker.QueueOwner{UID: "0"}), "does not own"},
		"the broker is not seen": {withoutConnection(v1alpha1.ReasonConnectionFailed), "does not own"},
	} {
		o := observed(row.change)
		o.Queue.Status = Decide(o).Status
		problem := MoveTargetProblem(o.Queue)
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
