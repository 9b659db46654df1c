package schedule

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

func when(expression string) func(*v1alpha1.Schedule) {
	return func(s *v1alpha1.Schedule) { s.Spec.When = expression }
}

// Several times are due at once. The expression selects some of them, and catchUp which of these run.
func TestWhenSelectsTheTimesThatMayRun(t *testing.T) {
	for title, test := range map[string]struct {
		when    string
		catchUp v1alpha1.ScheduleCatchUp
		started []string
		reasons map[string]int64
	}{
		"all, and the last runs":         {"true", "", []string{"18:00"}, map[string]int64{"Superseded": 5}},
		"none":                           {"false", "", nil, map[string]int64{"WhenFalse": 6}},
		"even hours, and the last runs":  {"scheduledTime.getHours() % 2 == 0", "", []string{"18:00"}, map[string]int64{"Superseded": 2, "WhenFalse": 3}},
		"odd hours, and the last runs":   {"scheduledTime.getHours() % 2 == 1", "", []string{"17:00"}, map[string]int64{"Superseded": 2, "WhenFalse": 3}},
		"odd hours, and all run":         {"scheduledTime.getHours() % 2 == 1", v1alpha1.CatchUpAll, []string{"13:00", "15:00", "17:00"}, map[string]int64{"WhenFalse": 3}},
		"in the time zone of the people": {"scheduledTime.getHours('Europe/Berlin') == 17", "", []string{"15:00"}, map[string]int64{"Superseded": 0, "WhenFalse": 5}},
		"no time without a run":          {"runs[0].succeeded", "", nil, map[string]int64{"WhenFailed": 6}},
		"a loop that costs too much":     {"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, a+b+c+d > 0))))", "", nil, map[string]int64{"WhenFailed": 6}},
	} {
		t.Run(title, func(t *testing.T) {
			s := newScenario(t, when(test.when), catchUp(test.catchUp)).at(time.Second).at(6 * time.Hour)
			s.wantStarted(test.started...)
			missed := int64(0)
			for _, count := range test.reasons {
				missed += count
			}
			assert.Equal(t, "number of missed times", missed, s.schedule.Status.Missed)
			for reason, count := range test.reasons {
				found := strings.Contains(strings.Join(s.events, "\n"), missedTexts[reason])
				require.True(t, found == (count > 0), "an event about %s: %t: %q", reason, found, s.events)
			}
			if test.reasons["WhenFailed"] > 0 {
				s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonWhenFailed, "is unknown: when: ")
			} else {
				s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
			}
		})
	}
}

func TestWhenSeesTheRunForWhichATimeWaits(t *testing.T) {
	s := newScenario(t, when("runs.size() == 0 || runs[0].succeeded"), concurrency(v1alpha1.ConcurrencyForbid)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	s.wantReady(metav1.ConditionTrue, v1alpha1.ReasonWaitingForRun, "")
	s.finish(2*time.Hour, false).at(2*time.Hour + time.Minute)
	require.True(t, s.schedule.Status.Missed == 1 && s.schedule.Status.LastMissed.Reason == v1alpha1.MissedWhenFalse,
		"missed %+v, want the time after the run that failed", s.schedule.Status.LastMissed)
}

func TestReplaceKeepsTheActiveRunOfATimeThatWhenRejects(t *testing.T) {
	s := newScenario(t, when("active == 0"), concurrency(v1alpha1.ConcurrencyReplace)).at(time.Second).at(time.Hour).at(2 * time.Hour)
	require.True(t, len(s.deleted) == 0 && s.schedule.Status.Missed == 1, "deleted %q, missed %d times", s.deleted, s.schedule.Status.Missed)
}

func TestATriggeredRunStartsWhateverWhenSays(t *testing.T) {
	newScenario(t, when("false")).at(time.Second).request("now").at(time.Minute).wantRequest(1, 0, 0)
	newScenario(t, when("scheduledTime.getHours() > 14")).at(6*time.Hour).request("again", 1, 4).at(6*time.Hour+time.Minute).wantRequest(2, 2, 0)
}

func TestAWrongExpressionIsRejected(t *testing.T) {
	for expression, want := range map[string]string{
		"runs[0].hasSucceeded": "undefined field 'hasSucceeded'",
		"scheduledTime":        "must be true or false, but has the type",
		"steps.size() == 0":    "undeclared reference to 'steps'",
		"runs.size() == ":      "column",
		"runs[0] == 'failed'":  "no matching overload",
	} {
		s := newScenario(t, when(expression)).at(time.Second)
		s.wantReady(metav1.ConditionFalse, v1alpha1.ReasonScheduleInvalid, want)
		errs := Validate(s.schedule)
		require.True(t, len(errs) == 1 && strings.Contains(errs[0].Error(), want), "%s: %v, want %q", expression, errs, want)
	}
}
