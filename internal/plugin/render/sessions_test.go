package render

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// tidying is a session whose second attempt has run for ten seconds at the time start.
func tidying(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: start.Add(time.Duration(seconds) * time.Second)}
	}
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "tidy", Namespace: "data", CreationTimestamp: *at(-120)}}
	s.Spec.Runner, s.Spec.Timeout = "default", new(int32(1800))
	s.Status = v1alpha1.AgenticSessionStatus{
		Phase: v1alpha1.SessionRunning, Run: 1, Attempt: 2, Job: "tidy-r1-a2", JobStartTime: at(-10), ActiveSeconds: 40,
		TotalCostUSD: new(v1alpha1.Number("0.12")),
		Runs: []v1alpha1.SessionRun{{
			Run: 1, Attempt: 1, Job: "tidy-r1-a1", Start: at(-60), End: at(-20), Outcome: v1alpha1.RunRetried, Reason: v1alpha1.ReasonExitedWithError,
			Message: "the runner exited\nwith code 3", CostUSD: new(v1alpha1.Number("0.12")),
		}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunning}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// completes the attempt that tidying is at.
func completes(s *v1alpha1.AgenticSession) {
	s.Status.Phase, s.Status.Job, s.Status.JobStartTime, s.Status.ActiveSeconds = v1alpha1.SessionCompleted, "", nil, 52
	s.Status.Conditions[0].Reason = string(v1alpha1.SessionCompleted)
	s.Status.Runs = append(s.Status.Runs, v1alpha1.SessionRun{
		Run: 1, Attempt: 2, Job: "tidy-r1-a2", Outcome: v1alpha1.RunCompleted, Reason: string(v1alpha1.RunCompleted),
		Start: &metav1.Time{Time: start.Add(-10 * time.Second)}, End: &metav1.Time{Time: start.Add(2 * time.Second)},
	})
	s.Status.Result = &v1alpha1.SessionResult{Run: 1, Attempt: 2, Summary: "Removed\n3 functions."}
}

// waits for its SessionRunner.
func waits(s *v1alpha1.AgenticSession) {
	s.Status = v1alpha1.AgenticSessionStatus{Phase: v1alpha1.SessionPending, Run: 1, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRunnerNotFound, Message: "there is no SessionRunner default",
	}}}
}

func TestSessions(t *testing.T) {
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		want    string
	}{
		"not seen by the operator yet": {
			&v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "tidy"}},
			"tidy   Pending   -        -     -         0s     -",
		},
		"at work": {
			tidying(),
			"tidy   Running   -        1     2         50s/30m0s   $0.12   default   2m",
		},
		"without end": {
			tidying(func(s *v1alpha1.AgenticSession) { s.Spec.Timeout = new(int32(0)) }),
			"tidy   Running   -        1     2         50s    $0.12   default   2m",
		},
		"stopped, and why": {
			tidying(func(s *v1alpha1.AgenticSession) {
				s.Status.Phase, s.Status.StoppedReason = v1alpha1.SessionStopped, v1alpha1.StopInactivity
			}),
			"tidy   Stopped   Inactivity   1     2         50s/30m0s   $0.12   default   2m",
		},
		"waiting, and for what": {
			tidying(waits),
			"tidy   Pending   SessionRunnerNotFound   1     -         0s/30m0s   -      default   2m",
		},
		"being deleted": {
			tidying(func(s *v1alpha1.AgenticSession) { s.DeletionTimestamp = &metav1.Time{Time: start} }),
			"tidy   Deleting   -        1     2         50s/30m0s   $0.12   default   2m",
		},
	} {
		t.Run(title, func(t *testing.T) {
			lines := Sessions(terminal.Style{}, []*v1alpha1.AgenticSession{row.session}, start)
			if diff := cmp.Diff(row.want, lines[1]); diff != "" {
				t.Errorf("below %q (-want +got):\n%s", lines[0], diff)
			}
		})
	}
	want := []string{
		"NAMESPACE   NAME   STATUS    REASON   RUN   ATTEMPT   TIME        COST    RUNNER    AGE",
		"data        tidy   Running   -        1     2         50s/30m0s   $0.12   default   2m",
	}
	if diff := cmp.Diff(want, SessionsOfNamespaces(terminal.Style{}, []*v1alpha1.AgenticSession{tidying()}, start)); diff != "" {
		t.Errorf("with namespaces (-want +got):\n%s", diff)
	}
}

func TestASessionIsShownAttemptByAttempt(t *testing.T) {
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		want    []string
	}{
		"at work": {tidying(), []string{
			"tidy   Running   50s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried   40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ▶ run 1, attempt 2   Running   10s",
		}},
		"completed": {tidying(completes), []string{
			"tidy   Completed   52s/30m0s   $0.12",
			"  ✘ run 1, attempt 1   Retried     40s   $0.12   ExitedWithError: the runner exited with code 3",
			"  ✔ run 1, attempt 2   Completed   12s   -",
			"  Removed 3 functions.",
		}},
		"stopped": {
			tidying(func(s *v1alpha1.AgenticSession) {
				s.Status.Phase, s.Status.Job, s.Status.JobStartTime = v1alpha1.SessionStopped, "", nil
				s.Status.Runs[0].Outcome, s.Status.Runs[0].Reason, s.Status.Runs[0].Message = v1alpha1.RunStopped, string(v1alpha1.StopUser), ""
			}),
			[]string{"tidy   Stopped   40s/30m0s   $0.12", "  ■ run 1, attempt 1   Stopped   40s   $0.12   User"},
		},
		"waiting": {tidying(waits), []string{"tidy   Pending   0s/30m0s   -", "  SessionRunnerNotFound: there is no SessionRunner default"}},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(row.want, SessionDetail(terminal.Style{}, row.session, start)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangesOfASessionAreToldOnce(t *testing.T) {
	malformed := tidying(completes, func(s *v1alpha1.AgenticSession) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionResultValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonResultMalformed, Message: "the result is cut off",
		})
	})
	for title, row := range map[string]struct {
		before, after *v1alpha1.AgenticSession
		want          []string
	}{
		"when it is first seen, all": {nil, tidying(), []string{
			"run 1, attempt 1: Retried: ExitedWithError: the runner exited with code 3", "Running, run 1, attempt 2",
		}},
		"when nothing has changed, nothing": {tidying(), tidying(), nil},
		"when an attempt ends, how":         {tidying(), tidying(completes), []string{"run 1, attempt 2: Completed", "Completed, run 1, attempt 2"}},
		"when it waits, for what":           {nil, tidying(waits), []string{"SessionRunnerNotFound: there is no SessionRunner default", "Pending"}},
		"when its result cannot be read":    {tidying(completes), malformed, []string{"ResultMalformed: the result is cut off"}},
		"before the operator has seen it":   {nil, &v1alpha1.AgenticSession{}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(row.want, SessionChanges(row.before, row.after)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAResultIsWhatTheRunnerSays(t *testing.T) {
	s := tidying(completes, func(s *v1alpha1.AgenticSession) {
		s.Status.Result.CostUSD = new(v1alpha1.Number("0.1"))
		s.Status.Result.Usage = &apiextensionsv1.JSON{Raw: []byte(`{"tokens":12}`)}
		s.Status.Result.SDKSessionID = "abc"
	})
	want := []string{
		"attempt        run 1, attempt 2", "cost           $0.1", "all runs       $0.12", `usage          {"tokens":12}`, "sdkSessionId   abc",
		"", "Removed", "3 functions.",
	}
	if diff := cmp.Diff(want, SessionResult(terminal.Style{}, s)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"attempt    run 1, attempt 2", "all runs   $0.12"}, SessionResult(terminal.Style{}, tidying(completes, func(s *v1alpha1.AgenticSession) {
		s.Status.Result.Summary = ""
	}))); diff != "" {
		t.Errorf("of a silent one (-want +got):\n%s", diff)
	}
}
