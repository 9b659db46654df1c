package queue

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// seen is a look at a broker that answers, and has the queue as it is to be.
func seen(changes ...func(*Observation)) *Observation {
	o := &Observation{
		Engine: v1alpha1.EngineNATS,
		Outcome: &broker.EnsureResult{Enforcement: broker.Capabilities{
			broker.FieldLease: {By: broker.EnforcedByBroker}, broker.FieldRetry: {By: broker.EnforcedByWorker},
		}},
		Figures: at(0, 0, 0, 0, 0),
	}
	for _, change := range changes {
		change(o)
	}
	return o
}

func conditions(s *v1alpha1.QueueStatus) map[string]string {
	all := map[string]string{}
	for _, c := range s.Conditions {
		all[c.Type] = fmt.Sprintf("%s %s", c.Status, c.Reason)
	}
	return all
}

func TestConditions(t *testing.T) {
	drift := []broker.SettingDifference{{Object: "stream x", Setting: "max_msgs", Want: "1", Found: "2"}}
	unreachable := func(o *Observation) {
		o.Outcome, o.Figures = nil, nil
		o.Unreachable = &Trouble{v1alpha1.ReasonSecretNotFound, `Secret "broker" not found`}
	}
	for name, row := range map[string]struct {
		queue func(*v1alpha1.Queue)
		seen  func(*Observation)
		// want differs so from a queue with which all is well.
		want map[string]string
		says string
	}{
		"all is well": {},
		"paused": {
			queue: func(q *v1alpha1.Queue) { q.Spec.Paused = true },
			want:  map[string]string{v1alpha1.ConditionReady: "True Paused"},
		},
		"the Secret is not there": {
			seen: unreachable,
			want: map[string]string{
				v1alpha1.ConditionReady: "False SecretNotFound", v1alpha1.ConditionBrokerReachable: "False SecretNotFound",
				v1alpha1.ConditionConfigSynced: "Unknown SecretNotFound", v1alpha1.ConditionConflict: "Unknown SecretNotFound",
				v1alpha1.ConditionPolicyFullyEnforced: "Unknown Pending", v1alpha1.ConditionDeadLettersPresent: "Unknown Pending",
			},
			says: `Secret "broker" not found`,
		},
		"an older Queue has it": {
			seen: func(o *Observation) {
				o.Outcome, o.Figures = nil, nil
				o.Failure = fmt.Errorf("ensuring: %w", &broker.OwnerConflictError{Queue: "mail", Owner: broker.QueueOwner{UID: "0", Name: "ns/post"}})
			},
			want: map[string]string{
				v1alpha1.ConditionReady: "False OwnedByOtherQueue", v1alpha1.ConditionConfigSynced: "False OwnedByOtherQueue", v1alpha1.ConditionConflict: "True OwnedByOtherQueue",
				v1alpha1.ConditionPolicyFullyEnforced: "Unknown Pending", v1alpha1.ConditionDeadLettersPresent: "Unknown Pending",
			},
			says: `yardmaster.dev/supersedes: "0"`,
		},
		"the broker cannot do it": {
			seen: func(o *Observation) {
				o.Outcome, o.Figures, o.Failure = nil, nil, broker.Errorf(broker.ClassInvalid, "retention is Limits")
			},
			want: map[string]string{
				v1alpha1.ConditionReady: "False RefusedByBroker", v1alpha1.ConditionConfigSynced: "False RefusedByBroker",
				v1alpha1.ConditionPolicyFullyEnforced: "Unknown Pending", v1alpha1.ConditionDeadLettersPresent: "Unknown Pending",
			},
			says: "retention is Limits",
		},
		"drift that stays": {
			seen: func(o *Observation) { o.Outcome.Drift = drift },
			want: map[string]string{v1alpha1.ConditionReady: "False Drifted", v1alpha1.ConditionConfigSynced: "False Drifted"},
			says: "stream x: max_msgs is 2, should be 1",
		},
		"drift that was corrected": {
			seen: func(o *Observation) { o.Outcome.Drift, o.Outcome.Corrected = drift, true },
		},
		"nobody keeps to a field": {
			queue: func(q *v1alpha1.Queue) { q.Spec.MaxBacklog = new(int64(9)) },
			seen: func(o *Observation) {
				o.Outcome.Enforcement[broker.FieldMaxBacklog] = broker.Enforcement{By: broker.NotEnforced, Message: "too late"}
			},
			want: map[string]string{v1alpha1.ConditionPolicyFullyEnforced: "False Unsupported"},
			says: "nobody keeps to maxBacklog (too late)",
		},
		"what the engine cannot do besides is no field of the spec": {
			seen: func(o *Observation) {
				o.Outcome.Enforcement[broker.FieldDelayed] = broker.Enforcement{By: broker.NotEnforced}
			},
		},
		"dead letters": {
			seen: func(o *Observation) { o.Figures.DeadLetters = 1 },
			want: map[string]string{v1alpha1.ConditionDeadLettersPresent: "True DeadLetters"},
			says: "1 dead letter",
		},
		"dead letters below the threshold": {
			seen: func(o *Observation) {
				o.Figures.DeadLetters = 2
				o.Effective.DeadLetter = &v1alpha1.DeadLetter{AlertThreshold: new(int64(3))}
			},
			says: "2 dead letters, fewer than deadLetter.alertThreshold, 3",
		},
		"more arrives than may begin": {
			seen: func(o *Observation) {
				o.Effective.RateLimit = &v1alpha1.RateLimit{Limit: 600, Per: lasting(time.Minute)}
				for i := range 20 {
					o.Memory = o.Memory.learn(at(float64(5*i), uint64(125*i), int64(75*i), 0, time.Second))
				}
				o.Figures = at(100, 2500, 1500, 0, time.Second)
			},
			want: map[string]string{v1alpha1.ConditionReady: "True RateBelowArrivals"},
			says: "rateLimit lets 10 messages a second begin and 25 arrive: the backlog grows by 15 a second",
		},
		"deleted, and kept by something": {
			queue: func(q *v1alpha1.Queue) { q.DeletionTimestamp = new(metav1.NewTime(noon)) },
			seen:  func(o *Observation) { o.Outcome, o.Blocked = nil, &Trouble{v1alpha1.ReasonNotEmpty, "2 messages left"} },
			want: map[string]string{
				v1alpha1.ConditionReady: "False Deleting", v1alpha1.ConditionConfigSynced: "False Deleting",
				v1alpha1.ConditionDeletionBlocked: "True NotEmpty", v1alpha1.ConditionPolicyFullyEnforced: "Unknown Pending",
			},
			says: "2 messages left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, o := mail(), seen()
			if row.queue != nil {
				row.queue(q)
			}
			if row.seen != nil {
				row.seen(o)
			}
			want := map[string]string{
				v1alpha1.ConditionReady: "True Ready", v1alpha1.ConditionBrokerReachable: "True Connected",
				v1alpha1.ConditionConfigSynced: "True Synced", v1alpha1.ConditionConflict: "False Synced",
				v1alpha1.ConditionPolicyFullyEnforced: "True Enforced", v1alpha1.ConditionDeadLettersPresent: "False NoDeadLetters",
			}
			maps.Copy(want, row.want)
			plan := Decide(q, o)
			if diff := cmp.Diff(want, conditions(&plan.Status)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			said := ""
			for _, c := range plan.Status.Conditions {
				said += c.Message + "\n"
				if c.ObservedGeneration != 3 {
					t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
			if !strings.Contains(said, row.says) {
				t.Errorf("no condition says %q:\n%s", row.says, said)
			}
		})
	}
}

func TestAStatusThatSaysTheSameIsTheSame(t *testing.T) {
	q := mail()
	m := Memory{}
	changes := 0
	for i := range 100 {
		o := seen(func(o *Observation) { o.Memory, o.Figures = m, at(float64(60*i), 7, 0, 0, 0) })
		plan := Decide(q, o)
		if m = plan.Memory; !equality.Semantic.DeepEqual(q.Status, plan.Status) {
			changes++
		}
		q.Status = plan.Status
	}
	// The first look, and the first rate.
	if changes > 2 {
		t.Errorf("an idle queue's status changed %d times", changes)
	}
}

func TestOnlyFiguresThatChangeAreMinor(t *testing.T) {
	q := mail()
	first := Decide(q, seen(func(o *Observation) { o.Figures.DeadLetters = 1 }))
	q.Status = first.Status
	for name, row := range map[string]struct {
		change func(*Observation)
		want   bool
	}{
		"nothing at all":                  {func(*Observation) {}, false},
		"another number of messages":      {func(o *Observation) { o.Figures.Ready = 9 }, true},
		"another number of dead letters":  {func(o *Observation) { o.Figures.DeadLetters = 2 }, true},
		"the first dead letters are gone": {func(o *Observation) { o.Figures.DeadLetters = 0 }, false},
		"nothing can be read any more":    {func(o *Observation) { o.Figures = nil }, false},
		"another effective limit":         {func(o *Observation) { o.Effective.RateLimit = &v1alpha1.RateLimit{Limit: 1} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen(func(o *Observation) { o.Figures.DeadLetters = 1 })
			row.change(o)
			if got := Decide(q, o).Minor; got != row.want {
				t.Errorf("minor: %t", got)
			}
		})
	}
}

func TestFiguresThatCannotBeReadAreLeftOut(t *testing.T) {
	q := mail()
	q.Status = Decide(q, seen()).Status
	s := Decide(q, seen(func(o *Observation) { o.Figures = nil })).Status
	if s.Ready != nil || s.InFlight != nil || s.Delayed != nil || s.Dead != nil || s.MeasuredTime != nil {
		t.Errorf("there are figures: %+v", s)
	}
	// But that there were dead letters is not forgotten with their number.
	if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDeadLettersPresent) == nil {
		t.Error("the condition is gone")
	}
}

func TestEventsAreOfTransitions(t *testing.T) {
	status := func(changes ...func(*Observation)) *v1alpha1.QueueStatus {
		plan := Decide(mail(), seen(changes...))
		return &plan.Status
	}
	lost := func(o *Observation) { o.Unreachable = &Trouble{v1alpha1.ReasonConnectionFailed, "refused"} }
	dead := func(o *Observation) { o.Figures.DeadLetters = 1 }
	nothing := &v1alpha1.QueueStatus{}
	for name, row := range map[string]struct {
		before, after *v1alpha1.QueueStatus
		want          []string
	}{
		"at first":          {nothing, status(), nil},
		"lost at once":      {nothing, status(lost), []string{v1alpha1.EventBrokerUnreachable}},
		"lost":              {status(), status(lost), []string{v1alpha1.EventBrokerUnreachable}},
		"still lost":        {status(lost), status(lost), nil},
		"found":             {status(lost), status(), []string{v1alpha1.EventBrokerReachable}},
		"dead letters":      {status(), status(dead), []string{v1alpha1.EventDeadLetters}},
		"more dead letters": {status(dead), status(func(o *Observation) { o.Figures.DeadLetters = 5 }), nil},
		"refused":           {status(), status(func(o *Observation) { o.Failure = broker.Errorf(broker.ClassInvalid, "no") }), []string{v1alpha1.ReasonRefusedByBroker}},
		"an older Queue turned up": {
			status(), status(func(o *Observation) { o.Failure = &broker.OwnerConflictError{} }), []string{v1alpha1.ReasonOwnedByOtherQueue},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range Events(row.before, row.after) {
				got = append(got, event.Reason)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDriftIsToldOfOnce(t *testing.T) {
	drift := []broker.SettingDifference{{Object: "stream x", Setting: "max_msgs", Want: "1", Found: "2"}}
	outcome := &broker.EnsureResult{Drift: drift}
	first := Decide(mail(), seen(func(o *Observation) { o.Outcome = outcome })).Status
	if got := Done(outcome, &v1alpha1.QueueStatus{}, &first); len(got) != 1 || got[0].Reason != v1alpha1.EventDriftFound {
		t.Errorf("at first: %+v", got)
	}
	if got := Done(outcome, &first, &first); got != nil {
		t.Errorf("again: %+v", got)
	}
	if got := Done(&broker.EnsureResult{Drift: drift, Corrected: true}, &first, &first); len(got) != 1 || got[0].Reason != v1alpha1.EventDriftCorrected {
		t.Errorf("corrected: %+v", got)
	}
}

func TestALongMessageIsCut(t *testing.T) {
	plan := Decide(mail(), seen(func(o *Observation) {
		o.Unreachable = &Trouble{v1alpha1.ReasonConnectionFailed, strings.Repeat("ä", 5000)}
	}))
	for _, c := range plan.Status.Conditions {
		if length := len([]rune(c.Message)); length > maxMessage {
			t.Errorf("%s has %d characters", c.Type, length)
		}
	}
}
