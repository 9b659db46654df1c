package queue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

// observed returns an observation of an empty queue that matches its spec, with no action left.
func observed(changes ...func(*Observation)) Observation {
	o := unobserved()
	o.Queue.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Queue"}
	o.EnsureResult = &broker.EnsureResult{Enforcement: broker.Capabilities{
		broker.FieldLease: {By: broker.EnforcedByBroker}, broker.FieldRetry: {By: broker.EnforcedByWorker},
	}, Storage: &broker.StorageState{Replicas: 3, CurrentReplicas: 3}}
	o.Rescued, o.Stats = true, statsAt(0, 0, 0, 0, 0)
	for _, change := range changes {
		change(&o)
	}
	return o
}

// failedWith sets the observation after the broker refused to ensure the queue.
func failedWith(err error) func(*Observation) {
	return func(o *Observation) { o.EnsureResult, o.Stats, o.BrokerError = nil, nil, err }
}

// withoutConnection sets an observation whose connection has a problem.
func withoutConnection(reason string) func(*Observation) {
	return func(o *Observation) {
		o.EnsureResult, o.Stats = nil, nil
		o.Connection.Problem = &decision.Problem{Reason: reason, Message: `Secret "broker" not found`}
	}
}

func withDrift(corrected bool) func(*Observation) {
	return func(o *Observation) {
		o.EnsureResult.Drift = []broker.SettingDifference{{Object: "stream x", Setting: "max_msgs", Want: "1", Found: "2"}}
		o.EnsureResult.Corrected = corrected
	}
}

func isSuspended(o *Observation) { o.Queue.Spec.Suspend = true }

func evicting(o *Observation) { o.EnsureResult.EvictionPolicy = "allkeys-lru" }

func findCondition(s *v1alpha1.QueueStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func conditionStates(s *v1alpha1.QueueStatus) map[string]string {
	states := map[string]string{}
	for _, c := range s.Conditions {
		states[c.Type] = fmt.Sprintf("%s %s", c.Status, c.Reason)
	}
	return states
}

// The rows with a status of kstatus are those of docs/conditions.md.
func TestConditionsOfAQueue(t *testing.T) {
	const ofOthers = "The queue mail on the broker belongs to a Queue of another namespace or cluster; create this Queue again with another name"
	inOtherNamespace := broker.QueueOwner{UID: "0", Name: "elsewhere/post", Cluster: testCluster}
	inOtherCluster := broker.QueueOwner{UID: "0", Name: "ns/post", Cluster: "another"}
	stranded := func(o *Observation) {
		o.History.Stranded = StrandedMessages{Number: new(int64(1)), Since: o.Now.Add(-time.Hour)}
	}
	type conditions = map[string]string
	unknown := func(reachable, synced, replicated string) conditions {
		return conditions{
			v1alpha1.ConditionBrokerReachable: reachable, v1alpha1.ConditionConfigSynced: synced,
			v1alpha1.ConditionReplicated: replicated, v1alpha1.ConditionDeadLettersPresent: "Unknown Pending",
		}
	}
	inConflict := unknown("True Connected", "False OwnedByOtherQueue", "Unknown OwnedByOtherQueue")
	for name, row := range map[string]struct {
		change func(*Observation)
		ready  string
		// kstatus is what kstatus makes of Ready, Reconciling and Stalled; empty: not compared.
		kstatus status.Status
		// others are the conditions that differ from those of an empty queue in sync; nil: not compared.
		others conditions
		// message of a condition.
		message string
	}{
		"in sync":                        {func(*Observation) {}, "True Ready", status.CurrentStatus, conditions{}, "The queue on the broker matches the spec"},
		"suspended":                      {isSuspended, "True Suspended", status.CurrentStatus, conditions{}, ""},
		"connecting":                     {func(o *Observation) { o.Connection.Connecting = true }, "Unknown Pending", status.InProgressStatus, nil, ""},
		"no broker":                      {withoutConnection(v1alpha1.ReasonNoBroker), "False NoBroker", status.InProgressStatus, nil, ""},
		"the broker does not respond":    {withoutConnection(v1alpha1.ReasonConnectionFailed), "False ConnectionFailed", status.InProgressStatus, nil, ""},
		"invalid Secret":                 {withoutConnection(v1alpha1.ReasonSecretInvalid), "False SecretInvalid", status.FailedStatus, nil, ""},
		"the login is refused":           {withoutConnection(v1alpha1.ReasonUnauthorized), "False Unauthorized", status.FailedStatus, nil, ""},
		"fewer replicas than by default": {storedAs(broker.StorageState{Replicas: 1, CurrentReplicas: 1, Refusal: "no"}), "True Ready", status.CurrentStatus, nil, ""},
		"no Secret": {
			withoutConnection(v1alpha1.ReasonSecretNotFound), "False SecretNotFound", status.InProgressStatus,
			unknown("False SecretNotFound", "Unknown SecretNotFound", "Unknown SecretNotFound"), `Secret "broker" not found`,
		},
		"the replicas are refused": {storedAs(broker.StorageState{Replicas: 1, CurrentReplicas: 1, Refusal: "no", RefusesConfig: true}), "False RefusedByBroker", status.FailedStatus, nil, ""},
		"the configuration is refused": {
			failedWith(broker.Errorf(broker.ClassInvalid, "retention is Limits")), "False RefusedByBroker", status.FailedStatus,
			unknown("True Connected", "Unknown RefusedByBroker", "Unknown RefusedByBroker"), "retention is Limits",
		},
		"another Queue of the namespace owns the queue": {
			ownedBy(broker.QueueOwner{UID: "0", Name: "ns/post", Cluster: testCluster}), "False OwnedByOtherQueue", status.FailedStatus, inConflict,
			"The queue mail on the broker belongs to Queue post; this Queue takes it over when that one is deleted",
		},
		"a Queue of another namespace owns the queue": {ownedBy(inOtherNamespace), "False OwnedByOtherQueue", status.FailedStatus, inConflict, ofOthers},
		"a Queue of another cluster owns the queue":   {ownedBy(inOtherCluster), "False OwnedByOtherQueue", status.FailedStatus, inConflict, ofOthers},
		"the queue belongs to no Queue": {
			ownedBy(broker.QueueOwner{}), "False OwnedByOtherQueue", status.FailedStatus, inConflict,
			"The queue mail exists on the operator's broker, and no Queue created it; create this Queue again with another name",
		},
		"drift that is not corrected": {withDrift(false), "False Drifted", status.FailedStatus, conditions{v1alpha1.ConditionConfigSynced: "False Drifted"}, "stream x: max_msgs is 2, should be 1"},
		"drift that was corrected":    {withDrift(true), "True Ready", status.CurrentStatus, conditions{}, ""},
		"stranded messages":           {stranded, "False MessagesStranded", status.InProgressStatus, nil, ""},
		"evictable messages":          {evicting, "True MessagesEvictable", status.CurrentStatus, conditions{}, "allkeys-lru"},
		"a field that is not enforced": {
			func(o *Observation) {
				o.Queue.Spec.MaxBacklog = new(int64(9))
				o.EnsureResult.Enforcement[broker.FieldMaxBacklog] = broker.Enforcement{By: broker.NotEnforced, Message: "too late"}
			}, "", "", conditions{v1alpha1.ConditionConfigSynced: "False Unsupported"}, "Not enforced: maxBacklog (too late)",
		},
		"a missing feature that is not a field of the spec": {
			func(o *Observation) {
				o.EnsureResult.Enforcement[broker.FieldDelayed] = broker.Enforcement{By: broker.NotEnforced, Message: "too old"}
			}, "True Ready", status.CurrentStatus, conditions{}, "refuses delayed messages: too old",
		},
		"dead letters": {
			func(o *Observation) { o.Stats.DeadLetters = 1 }, "True Ready", status.CurrentStatus, conditions{v1alpha1.ConditionDeadLettersPresent: "True DeadLetters"}, "1 dead letter",
		},
		"dead letters below the threshold": {
			func(o *Observation) {
				o.Stats.DeadLetters, o.Effective.DeadLetter = 2, &v1alpha1.DeadLetter{AlertThreshold: new(int64(3))}
			}, "True Ready", status.CurrentStatus, conditions{}, "2 dead letters, fewer than deadLetter.alertThreshold (3)",
		},
		"more messages arrive than rateLimit allows": {
			func(o *Observation) {
				o.Effective.RateLimit = &v1alpha1.RateLimit{Limit: 600, Per: durationOf(time.Minute)}
				for i := range 20 {
					o.History.Stats = o.History.Stats.add(statsAt(float64(5*i), uint64(125*i), int64(75*i), 0, time.Second))
				}
				o.Stats = statsAt(100, 2500, 1500, 0, time.Second)
			}, "", "", conditions{}, "The backlog grows by 15 messages per second: 25 arrive, and rateLimit lets workers start 10",
		},
		"being deleted": {func(o *Observation) {
			o.Queue.DeletionTimestamp = new(metav1.NewTime(noon))
			withUnreachableBroker(o)
		}, "False Deleting", status.TerminatingStatus, nil, ""},
		"deletion blocked": {
			func(o *Observation) {
				o.Queue.DeletionTimestamp, o.Queue.Spec.DeletionPolicy = new(metav1.NewTime(noon)), v1alpha1.DeletionDrain
				o.EnsureResult = nil
				owned(broker.QueueStats{Ready: 2, MeasuredTime: noon})(o)
			}, "", "",
			conditions{v1alpha1.ConditionConfigSynced: "False Deleting", v1alpha1.ConditionBlocked: "True NotEmpty", v1alpha1.ConditionReplicated: ""},
			"2 messages left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(row.change)
			o.Queue.Status = Decide(o).Status
			got, messages := conditionStates(&o.Queue.Status), ""
			for _, c := range o.Queue.Status.Conditions {
				messages += c.Message + "\n"
				require.True(t, c.ObservedGeneration == 3, "%s has generation %d", c.Type, c.ObservedGeneration)
			}
			require.True(t, strings.Contains(messages, row.message), "no condition has the message %q:\n%s", row.message, messages)
			if row.kstatus != "" {
				kstatustest.AssertKstatus(t, o.Queue, row.kstatus)
				_, reason, _ := strings.Cut(row.ready, " ")
				for kind, isTrue := range map[string]bool{
					v1alpha1.ConditionReconciling: row.kstatus == status.InProgressStatus || row.kstatus == status.TerminatingStatus,
					v1alpha1.ConditionStalled:     row.kstatus == status.FailedStatus,
				} {
					want := map[bool]string{true: "True ", false: "False "}[isTrue] + reason
					require.True(t, got[v1alpha1.ConditionReady] == row.ready && got[kind] == want, "%v, want Ready %s, %s %s", got, row.ready, kind, want)
				}
			}
			if row.others == nil {
				return
			}
			want := conditions{
				v1alpha1.ConditionBrokerReachable: "True Connected", v1alpha1.ConditionConfigSynced: "True Synced",
				v1alpha1.ConditionDeadLettersPresent: "False NoDeadLetters", v1alpha1.ConditionReplicated: "True FullyReplicated",
			}
			maps.Copy(want, row.others)
			maps.DeleteFunc(want, func(_, state string) bool { return state == "" })
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				delete(got, kind)
			}
			require.Equal(t, want, got)
		})
	}
}

func ownedBy(owner broker.QueueOwner) func(*Observation) {
	return failedWith(fmt.Errorf("ensuring: %w", &broker.OwnerConflictError{Queue: "mail", Owner: owner}))
}

// Those who read a Queue may not be allowed to read another namespace.
func TestNothingOfAStatusRevealsAnotherNamespacesOwner(t *testing.T) {
	for _, owner := range []broker.QueueOwner{
		{UID: "foreign-uid", Name: "foreign-namespace/foreign-queue", Cluster: testCluster},
		{UID: "foreign-uid", Name: "ns/foreign-queue", Cluster: "foreign-cluster"},
		{Name: "foreign-namespace/foreign-queue", Cluster: testCluster},
	} {
		d := Decide(observed(ownedBy(owner)))
		text := fmt.Sprintf("%+v %+v", d.Status, d.Events)
		require.True(t, !strings.Contains(text, "foreign"), "%+v: %s", owner, text)
	}
}

func TestTheStatusHasStatsOnlyOfAReachableQueueThatItOwns(t *testing.T) {
	known := Decide(observed(func(o *Observation) { o.Stats = statsAt(60, 3, 2, 1, time.Minute) }))
	before := &known.Status
	isKnown := before.Backlog != nil && *before.Backlog == 2 && *before.InFlight == 1 && before.OldestTime != nil && before.MeasuredTime != nil
	require.True(t, isKnown, "%+v", *before)
	for title, change := range map[string]func(*Observation){
		"the broker does not answer":   withoutConnection(v1alpha1.ReasonConnectionFailed),
		"another Queue owns the queue": ownedBy(broker.QueueOwner{UID: "0"}),
	} {
		after := Decide(observed(change, func(o *Observation) { o.Queue.Status, o.History = *before, known.History })).Status
		require.True(t, after.Backlog == nil && after.InFlight == nil && after.OldestTime == nil && after.MeasuredTime == nil, "%s: %+v", title, after)
	}
}

func TestTheStatusOfAnIdleQueueDoesNotChange(t *testing.T) {
	q := newQueue()
	history := History{}
	changes := 0
	for i := range 100 {
		d := Decide(observed(func(o *Observation) {
			o.Queue.Status, o.History, o.Stats = q.Status, history, statsAt(float64(60*i), 7, 0, 0, 0)
		}))
		if history = d.History; !equality.Semantic.DeepEqual(q.Status, d.Status) {
			changes++
		}
		q.Status = d.Status
	}
	// The first stats, and the first rates.
	require.True(t, changes <= 2, "the status changed %d times", changes)
}

func TestAStatusThatChangesHasTheTimeOfItsStatsAlsoIfTheyAreTheSame(t *testing.T) {
	const second = 60
	measured := func(generation int64) *metav1.Time {
		before := Decide(observed(func(o *Observation) { o.Stats = statsAt(0, 7, 0, 0, 0) }))
		return Decide(observed(func(o *Observation) {
			o.Queue.Status, o.Queue.Generation, o.Stats = before.Status, generation, statsAt(second, 7, 0, 0, 0)
		})).Status.MeasuredTime
	}
	generation := observed().Queue.Generation
	got := measured(generation)
	require.True(t, got.Time.Equal(noon), "the time of an unchanged status is %v, want %v", got, noon)
	got = measured(generation + 1)
	require.True(t, got.Time.Equal(noon.Add(second*time.Second)), "the time of a changed status is %v", got)
}

func TestWorkersTakeMessagesOfARemovedPriorityUntilItIsEmpty(t *testing.T) {
	both := []v1alpha1.QueuePriority{{Name: "high", Share: v1alpha1.Share{Weight: 9}}, {Name: "low", Share: v1alpha1.Share{Weight: 3}}}
	status := v1alpha1.QueueStatus{}
	for i, step := range []struct {
		priorities []v1alpha1.QueuePriority
		change     func(*Observation)
		want       string
	}{
		{both, func(*Observation) {}, "[{high 9} {low 3}]"},
		{both[:1], withoutConnection(v1alpha1.ReasonConnectionFailed), "[{high 9} {low 1}]"},
		{both[:1], func(o *Observation) { o.EnsureResult.RetiringPriorities = []string{"low"} }, "[{high 9} {low 1}]"},
		{both[:1], func(o *Observation) {
			o.Queue.DeletionTimestamp, o.Queue.Spec.DeletionPolicy = new(metav1.NewTime(noon)), v1alpha1.DeletionDrain
			o.EnsureResult, o.IsOwner, o.Stats.Ready = nil, true, 1
		}, "[{high 9} {low 1}]"},
		{both[:1], func(*Observation) {}, "[{high 9}]"},
	} {
		o := observed(func(o *Observation) { o.Queue.Spec.Priorities, o.Queue.Status = step.priorities, status }, step.change)
		status = Decide(o).Status
		o.Queue.Status = status
		desired := DesiredQueue(o.Queue, &o.Effective, testCluster)
		got := fmt.Sprint(WorkerPriorities(o.Queue, &desired))
		require.True(t, got == step.want, "step %d: %s, want %s", i, got, step.want)
	}
	full := &broker.QueueConfig{Priorities: make([]broker.Priority, broker.MaxPriorities)}
	require.Equal(t, full.Priorities, WorkerPriorities(newQueue(func(q *v1alpha1.Queue) { q.Status.Priorities = []string{"low"} }), full))
}

func TestOnlyAChangeOfStatsCanBeStoredLater(t *testing.T) {
	before := Decide(observed(func(o *Observation) { o.Stats.DeadLetters = 1 })).Status
	for name, row := range map[string]struct {
		change func(*Observation)
		want   bool
	}{
		"no change":                      {func(*Observation) {}, false},
		"another number of messages":     {func(o *Observation) { o.Stats.Ready = 9 }, true},
		"another number of dead letters": {func(o *Observation) { o.Stats.DeadLetters = 2 }, true},
		"no more dead letters":           {func(o *Observation) { o.Stats.DeadLetters = 0 }, false},
		"unknown stats":                  {withoutConnection(v1alpha1.ReasonConnectionFailed), false},
		"another effective limit":        {func(o *Observation) { o.Effective.RateLimit = &v1alpha1.RateLimit{Limit: 1} }, false},
		"a created queue":                {func(o *Observation) { o.Stats.Ready, o.EnsureResult.Created = 9, true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(func(o *Observation) { o.Queue.Status, o.Stats.DeadLetters = before, 1 })
			row.change(&o)
			require.Equal(t, row.want, Decide(o).StatsOnly)
		})
	}
}

func TestEventsReportTransitions(t *testing.T) {
	statusWith := func(changes ...func(*Observation)) *v1alpha1.QueueStatus {
		d := Decide(observed(changes...))
		return &d.Status
	}
	lost := withoutConnection(v1alpha1.ReasonConnectionFailed)
	oneReplica := storedAs(broker.StorageState{Replicas: 1, CurrentReplicas: 1, Refusal: "no"})
	oneOffline := storedAs(broker.StorageState{Replicas: 3, CurrentReplicas: 2, OfflineReplicas: 1})
	onAsynq := func(o *Observation) { o.Connection.Engine = v1alpha1.EngineAsynq }
	deadLetters := func(number int64) func(*Observation) { return func(o *Observation) { o.Stats.DeadLetters = number } }
	for name, row := range map[string]struct {
		before, after *v1alpha1.QueueStatus
		want          []string
	}{
		"a first observation":    {&v1alpha1.QueueStatus{}, statusWith(), nil},
		"never reachable":        {&v1alpha1.QueueStatus{}, statusWith(lost), []string{v1alpha1.EventBrokerUnreachable}},
		"broker lost":            {statusWith(), statusWith(lost), []string{v1alpha1.EventBrokerUnreachable}},
		"broker still lost":      {statusWith(lost), statusWith(lost), nil},
		"broker reachable again": {statusWith(lost), statusWith(), []string{v1alpha1.EventBrokerReachable}},
		"dead letters":           {statusWith(), statusWith(deadLetters(1)), []string{v1alpha1.EventDeadLetters}},
		"more dead letters":      {statusWith(deadLetters(1)), statusWith(deadLetters(5)), nil},
		// The Queue names no broker, so a Policy or the operator's default selects the engine.
		"an experimental engine":       {&v1alpha1.QueueStatus{}, statusWith(onAsynq), []string{v1alpha1.EventExperimentalEngine}},
		"the same engine":              {statusWith(onAsynq), statusWith(onAsynq), nil},
		"replicas refused":             {&v1alpha1.QueueStatus{}, statusWith(oneReplica), []string{v1alpha1.ReasonReplicasRefused}},
		"replicas still refused":       {statusWith(oneReplica), statusWith(oneReplica), nil},
		"evictable messages":           {statusWith(), statusWith(evicting), []string{v1alpha1.ReasonMessagesEvictable}},
		"more replicas":                {statusWith(oneReplica), statusWith(), []string{v1alpha1.ReasonFullyReplicated}},
		"a replica goes offline":       {statusWith(), statusWith(oneOffline), []string{v1alpha1.ReasonReplicasOffline}},
		"refused":                      {statusWith(), statusWith(failedWith(broker.Errorf(broker.ClassInvalid, "no"))), []string{v1alpha1.ReasonRefusedByBroker}},
		"another Queue owns the queue": {statusWith(), statusWith(failedWith(&broker.OwnerConflictError{})), []string{v1alpha1.ReasonOwnedByOtherQueue}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range transitionEvents(row.before, row.after) {
				got = append(got, event.Reason)
			}
			require.Equal(t, row.want, got)
		})
	}
}

func TestDriftIsReportedOnce(t *testing.T) {
	first := Decide(observed(withDrift(false)))
	require.True(t, len(first.Events) == 1 && first.Events[0].Reason == v1alpha1.EventDriftFound, "first: %+v", first.Events)
	stillDrifted := func(o *Observation) { o.Queue.Status = first.Status }
	again := Decide(observed(withDrift(false), stillDrifted))
	require.True(t, again.Events == nil, "again: %+v", again.Events)
	corrected := Decide(observed(withDrift(true), stillDrifted))
	require.True(t, len(corrected.Events) == 1 && corrected.Events[0].Reason == v1alpha1.EventDriftCorrected, "corrected: %+v", corrected.Events)
}

func TestErasedDelayedMessagesAreReportedOnce(t *testing.T) {
	o := observed(func(o *Observation) { o.EnsureResult.ErasedDelayed, o.Queue.Status.Delayed = true, new(int64(20)) })
	d := Decide(o)
	require.True(t, len(d.Events) == 1 && d.Events[0].Reason == v1alpha1.EventDelayedErased, "%+v", d.Events)
	require.Contains(t, d.Events[0].Message, "the queue had 20 before")
	o.History.Comparison = Comparison{BrokerID: "nats", Desired: DesiredQueue(o.Queue, &o.Effective, o.ClusterID), Expires: noon.Add(time.Hour), Result: *o.EnsureResult}
	o.Queue.Status, o.EnsureResult = d.Status, nil
	again := Decide(o)
	require.True(t, again.Action == ActionNone && again.Events == nil, "%+v", again)
}

func TestALongMessageIsTruncated(t *testing.T) {
	d := Decide(observed(func(o *Observation) {
		o.Connection.Problem = &decision.Problem{Reason: v1alpha1.ReasonConnectionFailed, Message: strings.Repeat("ä", 5000)}
	}))
	for _, c := range d.Status.Conditions {
		length := len(c.Message)
		require.True(t, length <= maxMessageBytes, "%s has %d bytes", c.Type, length)
	}
}

func TestAQueueIsNotReadyWhileMessagesStayStranded(t *testing.T) {
	const sweep = time.Minute
	two, none := int64(2), int64(0)
	o := observed(func(o *Observation) { o.SweepInterval, o.Stats.Delayed = sweep, 5 })
	stats, start := o.Stats, o.Now
	readyAfter := func(elapsed time.Duration, stranded *int64) (metav1.Condition, v1alpha1.QueueStatus, []decision.Event) {
		o.Now = start.Add(elapsed)
		o.Apply(ActionRescueMessages, ActionResult{Rescue: broker.RescueResult{Stranded: stranded}})
		o.Stats = stats
		d := Decide(o)
		return findCondition(&d.Status, v1alpha1.ConditionReady), d.Status, d.Events
	}
	for _, elapsed := range []time.Duration{0, sweep, 2 * sweep} {
		ready, status, _ := readyAfter(elapsed, &two)
		require.True(t, ready.Status == metav1.ConditionTrue && *status.Stranded == 2 && *status.Delayed == 3, "after %s: %+v, %+v", elapsed, ready, status)
	}
	ready, _, events := readyAfter(2*sweep+time.Second, &two)
	require.True(t, ready.Status == metav1.ConditionFalse && ready.Reason == v1alpha1.ReasonMessagesStranded, "after two sweeps: %+v", ready)
	require.Contains(t, ready.Message, ": 2 messages")
	isWarning := func(e decision.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.Reason == v1alpha1.ReasonMessagesStranded
	}
	require.True(t, slices.ContainsFunc(events, isWarning), "events %+v", events)
	ready, status, _ := readyAfter(3*sweep, nil)
	isUnknown := ready.Reason == v1alpha1.ReasonMessagesStranded && status.Stranded == nil && *status.Delayed == 5
	require.True(t, isUnknown, "while the number is unknown: %+v", ready)
	ready, status, _ = readyAfter(4*sweep, &none)
	require.True(t, ready.Status == metav1.ConditionTrue && *status.Stranded == 0, "after the rescue: %+v", ready)
}

func TestARescueThatIsNotCompleteContinuesBeforeTheNextSweep(t *testing.T) {
	for name, row := range map[string]struct {
		result ActionResult
		want   time.Duration
	}{
		"it was complete":   {ActionResult{Rescue: broker.RescueResult{Rescued: broker.MaxRescued - 1}}, time.Hour},
		"there may be more": {ActionResult{Rescue: broker.RescueResult{Rescued: broker.MaxRescued}}, unfinishedInterval},
		"messages are left": {ActionResult{Rescue: broker.RescueResult{Stranded: new(int64(1))}}, unfinishedInterval},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed()
			o.History.Comparison.Expires = o.Now.Add(time.Hour)
			o.Apply(ActionRescueMessages, row.result)
			require.Equal(t, o.Now.Add(row.want), o.History.Comparison.Expires)
		})
	}
}

func storedAs(state broker.StorageState) func(*Observation) {
	return func(o *Observation) { o.EnsureResult.Storage = &state }
}

func TestReplicatedIsTrueOnlyIfSeveralServersHaveAllMessages(t *testing.T) {
	type storage = broker.StorageState
	for name, row := range map[string]struct {
		state     storage
		replicas  int32
		want      string
		wantText  string
		wantReady string
	}{
		"three replicas":                      {storage{Replicas: 3, CurrentReplicas: 3}, 0, "True FullyReplicated", "3 servers have all messages", ""},
		"more than by default":                {storage{Replicas: 5, CurrentReplicas: 5}, 0, "True FullyReplicated", "", ""},
		"the broker refuses more than enough": {storage{Replicas: 3, CurrentReplicas: 3, Refusal: "no peers"}, 0, "True FullyReplicated", "", ""},
		"the broker refuses the default":      {storage{Replicas: 1, CurrentReplicas: 1, Refusal: "no peers"}, 0, "False ReplicasRefused", "1 of 3 replicas: no peers", ""},
		"the broker refuses the spec": {
			storage{Replicas: 3, CurrentReplicas: 3, Refusal: "no peers", RefusesConfig: true}, 5, "False ReplicasRefused", "3 of 5 replicas: no peers", "False RefusedByBroker",
		},
		"nothing adds replicas":                     {storage{Replicas: 1, CurrentReplicas: 1}, 0, "False ReplicasMissing", "drift is Warn", ""},
		"one replica by choice":                     {storage{Replicas: 1, CurrentReplicas: 1}, 1, "False SingleReplica", "lost with its server", ""},
		"a move before more replicas":               {storage{Replicas: 1, CurrentReplicas: 1, IsMoving: true}, 0, "False CatchingUp", "", ""},
		"new replicas":                              {storage{Replicas: 3, CurrentReplicas: 1}, 0, "False CatchingUp", "1 of 3 replicas have all messages", ""},
		"a server is offline":                       {storage{Replicas: 3, CurrentReplicas: 2, OfflineReplicas: 1}, 0, "False ReplicasOffline", "2 of 3 replicas are online", ""},
		"a broker that reports no replicas":         {storage{}, 0, "Unknown Pending", "", ""},
		"a broker that reports no current replicas": {storage{Replicas: 3}, 0, "Unknown Pending", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(storedAs(row.state))
			if row.replicas > 0 {
				o.Queue.Spec.Storage = &v1alpha1.QueueStorage{Replicas: &row.replicas}
			}
			s := Decide(o).Status
			require.Equal(t, row.want, conditionStates(&s)[v1alpha1.ConditionReplicated])
			require.Contains(t, findCondition(&s, v1alpha1.ConditionReplicated).Message, row.wantText)
			ready := findCondition(&s, v1alpha1.ConditionReady)
			got := conditionStates(&s)[v1alpha1.ConditionReady]
			require.True(t, row.wantReady == "" || got == row.wantReady, "Ready is %s, want %s", got, row.wantReady)
			claimsSafety := ready.Status == metav1.ConditionTrue && !strings.Contains(ready.Message, "not fully replicated")
			require.True(t, !strings.HasPrefix(row.want, "False") || !claimsSafety, "Ready does not mention the replicas: %s", ready.Message)
		})
	}
}

func TestReplicasThatCatchUpAreReadAgainSoon(t *testing.T) {
	for name, row := range map[string]struct {
		state broker.StorageState
		want  bool
	}{
		"all are current":        {broker.StorageState{Replicas: 3, CurrentReplicas: 3}, false},
		"one replica, refused":   {broker.StorageState{Replicas: 1, CurrentReplicas: 1, Refusal: "no"}, false},
		"a replica is behind":    {broker.StorageState{Replicas: 3, CurrentReplicas: 2}, true},
		"the queue moves":        {broker.StorageState{Replicas: 1, CurrentReplicas: 1, IsMoving: true}, true},
		"the number is unknown":  {broker.StorageState{Replicas: 3}, true},
		"nothing is known of it": {broker.StorageState{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed()
			o.applyEnsured(broker.EnsureResult{Storage: &row.state})
			for i := range 100 { // an idle queue is read once a minute
				o.History.Stats = o.History.Stats.add(statsAt(float64(i), 0, 0, 0, 0))
			}
			o.Rescued, o.Stats = true, statsAt(100, 0, 0, 0, 0)
			d := Decide(o)
			soon := d.RequeueAfter <= unfinishedInterval && !o.History.Comparison.Expires.After(noon.Add(2*unfinishedInterval))
			require.True(t, soon == row.want, "again after %s, compared again at %s", d.RequeueAfter, o.History.Comparison.Expires)
		})
	}
}
