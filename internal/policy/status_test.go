package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// queueWithTeam and poolOf are of a team, by their labels.
func queueWithTeam(team string) v1alpha1.Queue {
	return v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}}
}

func poolWithTeam(team string, replicas int32) v1alpha1.WorkerPool {
	return v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": team}}, Status: v1alpha1.WorkerPoolStatus{Replicas: replicas},
	}
}

func failingSelector(s *v1alpha1.PolicySpec) {
	s.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}
}

func TestStatus(t *testing.T) {
	team := withSelector("team", "mail")
	most := func(replicas int32) func(s *v1alpha1.PolicySpec) {
		return withLimits(v1alpha1.PolicyLimits{MaxReplicasTotal: &replicas})
	}
	there := Observation{
		Queues:      []v1alpha1.Queue{queueWithTeam("mail"), queueWithTeam("web"), queueWithTeam("mail")},
		WorkerPools: []v1alpha1.WorkerPool{poolWithTeam("mail", 3), poolWithTeam("mail", 4), poolWithTeam("web", 9)},
	}
	noSecret := there
	noSecret.BrokerProblem = &Problem{v1alpha1.ReasonSecretNotFound, `spec.defaults.broker: Secret "nats" not found`}
	for title, test := range map[string]struct {
		policy                  v1alpha1.Policy
		seen                    Observation
		queues, pools, replicas int32
		status                  metav1.ConditionStatus
		reason, message         string
	}{
		"it counts what it selects": {
			newPolicy("a", 0, team), there, 2, 2, 7, metav1.ConditionTrue, v1alpha1.ReasonReady, "selects 2 Queues and 2 WorkerPools with 7 replicas",
		},
		"without a selector it is all of the namespace": {
			newPolicy("a", 0), there, 3, 3, 16, metav1.ConditionTrue, v1alpha1.ReasonReady, "selects 3 Queues and 3 WorkerPools with 16 replicas",
		},
		"a budget says how much of it is used": {
			newPolicy("a", 0, team, most(10)), there, 2, 2, 7, metav1.ConditionTrue, v1alpha1.ReasonReady,
			"selects 2 Queues and 2 WorkerPools with 7 replicas of the 10 of maxReplicasTotal",
		},
		"a budget that was made smaller says what follows": {
			newPolicy("a", 0, team, most(5)), there, 2, 2, 7, metav1.ConditionTrue, v1alpha1.ReasonReady,
			"selects 2 Queues and 2 WorkerPools with 7 replicas, more than the 5 of maxReplicasTotal: workers are drained",
		},
		"one Queue alone": {
			newPolicy("a", 0), Observation{Queues: there.Queues[:1]}, 1, 0, 0, metav1.ConditionTrue, v1alpha1.ReasonReady, "selects 1 Queue and 0 WorkerPools",
		},
		"that it selects nothing is no failure, and told": {
			newPolicy("a", 0, withSelector("team", "none")), there, 0, 0, 0, metav1.ConditionTrue, v1alpha1.ReasonNothingSelected,
			"selects no Queue and no WorkerPool of the namespace",
		},
		"a selector that cannot be read": {
			newPolicy("a", 0, failingSelector), there, 0, 0, 0, metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid,
			`spec.selector: "Like" is not a valid label selector operator; it selects nothing`,
		},
		"a default broker whose Secret is not there": {
			newPolicy("a", 0, team), noSecret, 2, 2, 7, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound, noSecret.BrokerProblem.Message,
		},
	} {
		t.Run(title, func(t *testing.T) {
			test.policy.Generation = 4
			got := Status(&test.policy, &test.seen)
			want := v1alpha1.PolicyStatus{
				ObservedGeneration: 4, Queues: test.queues, WorkerPools: test.pools, Replicas: test.replicas,
				Conditions: []metav1.Condition{{
					Type: v1alpha1.ConditionReady, Status: test.status, Reason: test.reason, Message: test.message, ObservedGeneration: 4,
				}},
			}
			got.Conditions[0].LastTransitionTime = metav1.Time{}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the status differs (-want, +got):\n%s", diff)
			}
		})
	}
}

func TestTheSameSightChangesNothing(t *testing.T) {
	p := newPolicy("a", 0)
	seen := &Observation{Queues: []v1alpha1.Queue{queueWithTeam("mail")}}
	p.Status = Status(&p, seen)
	if diff := cmp.Diff(p.Status, Status(&p, seen)); diff != "" {
		t.Errorf("the status differs (-want, +got):\n%s", diff)
	}
}

func TestAPolicyIsTroubledOnceForEachReason(t *testing.T) {
	status := func(is metav1.ConditionStatus, reason string) *v1alpha1.PolicyStatus {
		s := &v1alpha1.PolicyStatus{}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: is, Reason: reason})
		return s
	}
	fine := status(metav1.ConditionTrue, v1alpha1.ReasonReady)
	missing := status(metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	for title, test := range map[string]struct {
		before, after *v1alpha1.PolicyStatus
		want          bool
	}{
		"from the start":        {&v1alpha1.PolicyStatus{}, missing, true},
		"all at once":           {fine, missing, true},
		"still":                 {missing, missing, false},
		"for another reason":    {status(metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid), missing, true},
		"not any more":          {missing, fine, false},
		"and never was it seen": {&v1alpha1.PolicyStatus{}, &v1alpha1.PolicyStatus{}, false},
	} {
		t.Run(title, func(t *testing.T) {
			if is, got := Troubled(test.before, test.after); got != test.want || got && is.Reason != v1alpha1.ReasonSecretNotFound {
				t.Errorf("%t: %+v, want %t", got, is, test.want)
			}
		})
	}
}
