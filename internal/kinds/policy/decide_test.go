package policy

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/kstatustest"
	"github.com/yardmaster/yardmaster/test/require"
)

var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func queueWithTeam(team string) v1alpha1.Queue {
	return v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}}
}

func poolWithTeam(team string, replicas int32) v1alpha1.WorkerPool {
	return v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}, Status: v1alpha1.WorkerPoolStatus{WorkerCounts: v1alpha1.WorkerCounts{Replicas: replicas}},
	}
}

func withInvalidSelector(s *v1alpha1.PolicySpec) {
	s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}
}

func withMaxReplicasTotal(replicas int32) func(*v1alpha1.PolicySpec) {
	return withLimits(v1alpha1.PolicyLimits{MaxReplicasTotal: &replicas})
}

func missingSecret() *decision.Problem {
	return &decision.Problem{Reason: v1alpha1.ReasonSecretNotFound, Message: `spec.defaults.broker: Secret "nats" not found`}
}

func TestStatusReportsTheSelectionOfThePolicy(t *testing.T) {
	team := withSelector("team", "mail")
	namespace := Observation{
		Objects: NewSelectableObjects(
			[]v1alpha1.Queue{queueWithTeam("mail"), queueWithTeam("web"), queueWithTeam("mail")},
			[]v1alpha1.WorkerPool{poolWithTeam("mail", 3), poolWithTeam("mail", 4), poolWithTeam("web", 9)},
		),
	}
	withoutSecret := namespace
	withoutSecret.BrokerProblem = missingSecret()
	tooLarge := withSelector("team", strings.Repeat("x", decision.MaxSpecBytes))
	one := Observation{Objects: NewSelectableObjects([]v1alpha1.Queue{queueWithTeam("mail")}, nil)}
	none, two, everything, onlyQueue := [3]int32{}, [3]int32{2, 2, 7}, [3]int32{3, 3, 16}, [3]int32{1, 0, 0}
	const withReplicas = "selects 2 Queues and 2 WorkerPools with 7 replicas"
	for title, test := range map[string]struct {
		policy      v1alpha1.Policy
		observation Observation
		selected    [3]int32 // Queues, WorkerPools and replicas
		wantReason  string
		wantMessage string
		wantKstatus status.Status
	}{
		"selected objects are counted":        {newPolicy("a", 0, team), namespace, two, v1alpha1.ReasonReady, withReplicas, status.CurrentStatus},
		"without a selector all are selected": {newPolicy("a", 0), namespace, everything, v1alpha1.ReasonReady, "selects 3 Queues and 3 WorkerPools with 16 replicas", status.CurrentStatus},
		"the use of a budget is reported":     {newPolicy("a", 0, team, withMaxReplicasTotal(10)), namespace, two, v1alpha1.ReasonReady, withReplicas + " of maxReplicasTotal 10", status.CurrentStatus},
		"a budget may be used up":             {newPolicy("a", 0, team, withMaxReplicasTotal(7)), namespace, two, v1alpha1.ReasonReady, withReplicas + " of maxReplicasTotal 7", status.CurrentStatus},
		"an exceeded budget is reported": {
			newPolicy("a", 0, team, withMaxReplicasTotal(5)), namespace, two, v1alpha1.ReasonReady,
			withReplicas + ", which exceeds maxReplicasTotal 5: workers are being drained", status.CurrentStatus,
		},
		"one Queue": {newPolicy("a", 0), one, onlyQueue, v1alpha1.ReasonReady, "selects 1 Queue and 0 WorkerPools", status.CurrentStatus},
		"an empty selection is not a failure": {
			newPolicy("a", 0, withSelector("team", "none")), namespace, none, v1alpha1.ReasonNothingSelected,
			"selects no Queue and no WorkerPool of the namespace", status.CurrentStatus,
		},
		"an invalid selector": {
			newPolicy("a", 0, withInvalidSelector), namespace, none, v1alpha1.ReasonSelectorInvalid,
			`spec.selector: "Like" is not a valid label selector operator; the Policy selects nothing`, status.FailedStatus,
		},
		"a selector that needs too much memory": {
			newPolicy("a", 0, tooLarge), namespace, none, v1alpha1.ReasonSelectorInvalid,
			"spec: " + decision.TooLargeMessage + "; the Policy selects nothing", status.FailedStatus,
		},
		"a missing Secret": {newPolicy("a", 0, team), withoutSecret, two, v1alpha1.ReasonSecretNotFound, missingSecret().Message, status.InProgressStatus},
	} {
		t.Run(title, func(t *testing.T) {
			test.policy.Generation = 4
			test.observation.Policy, test.observation.Now = &test.policy, testTime
			got := Decide(test.observation).Status
			require.Equal(t, 4, got.ObservedGeneration)
			require.Equal(t, test.selected, [3]int32{got.Queues, got.WorkerPools, got.Replicas})
			want := metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: test.wantReason, Message: test.wantMessage,
				ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(testTime),
			}
			if test.wantKstatus != status.CurrentStatus {
				want.Status = metav1.ConditionFalse
			}
			require.Equal(t, &want, meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady))
			test.policy.Status = got
			kstatustest.AssertKstatus(t, &test.policy, test.wantKstatus)
		})
	}
}

func TestTheSameObservationDoesNotChangeTheStatus(t *testing.T) {
	p := newPolicy("a", 0)
	observation := Observation{Policy: &p, Objects: NewSelectableObjects([]v1alpha1.Queue{queueWithTeam("mail")}, nil), Now: testTime}
	p.Status = Decide(observation).Status
	observation.Now = testTime.Add(time.Hour)
	require.Equal(t, p.Status, Decide(observation).Status)
}

func TestAProblemIsReportedByOneEvent(t *testing.T) {
	statusWith := func(ready metav1.ConditionStatus, reason string) v1alpha1.PolicyStatus {
		s := v1alpha1.PolicyStatus{}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason})
		return s
	}
	for title, test := range map[string]struct {
		before  v1alpha1.PolicyStatus
		problem *decision.Problem
		want    int
	}{
		"a new Policy with a problem":          {v1alpha1.PolicyStatus{}, missingSecret(), 1},
		"a problem of a Policy that was ready": {statusWith(metav1.ConditionTrue, v1alpha1.ReasonReady), missingSecret(), 1},
		"an unchanged problem":                 {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound), missingSecret(), 0},
		"another problem":                      {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid), missingSecret(), 1},
		"a resolved problem":                   {statusWith(metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound), nil, 0},
		"no problem":                           {v1alpha1.PolicyStatus{}, nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			p := newPolicy("a", 0)
			p.Status = test.before
			events := Decide(Observation{Policy: &p, BrokerProblem: test.problem, Now: testTime}).Events
			require.True(t, len(events) == test.want, "events %+v, want %d", events, test.want)
			require.True(t, test.want == 0 || events[0].Reason == v1alpha1.ReasonSecretNotFound, "events %+v", events)
		})
	}
}

func TestSecretsOfADefaultBrokerAreReadAgain(t *testing.T) {
	withBroker := fromDefault(v1alpha1.PolicyDefaults{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{}}})
	for title, test := range map[string]struct {
		policy  v1alpha1.Policy
		problem *decision.Problem
		want    time.Duration
	}{
		"valid Secrets after five minutes":  {newPolicy("a", 0, withBroker), nil, 5 * time.Minute},
		"a missing Secret after 15 seconds": {newPolicy("a", 0, withBroker), missingSecret(), 15 * time.Second},
		"never without a default broker":    {newPolicy("a", 0), nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, test.want, Decide(Observation{Policy: &test.policy, BrokerProblem: test.problem, Now: testTime}).RequeueAfter)
		})
	}
}

func TestAnInvalidSelectorOfAnyLengthIsReportedInAMessageThatTheAPIServerAccepts(t *testing.T) {
	p := newPolicy("long", 0, withSelector("team", strings.Repeat("long ", 10_000)))
	for _, c := range Decide(Observation{Policy: &p, Now: time.Now()}).Status.Conditions {
		isValid := len(c.Message) <= 32768 && strings.HasPrefix(c.Message, "spec.selector: ")
		require.True(t, isValid, "%s has a message of %d bytes: %.100s", c.Type, len(c.Message), c.Message)
	}
}
