package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/follow"
	"github.com/yardmaster/yardmaster/test/require"
)

// agenticSession returns a session in namespace a, in its first run.
func agenticSession(name string, phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: "1", Generation: 1}}
	s.Spec = v1alpha1.AgenticSessionSpec{Prompt: "Tidy up.", Limits: v1alpha1.SessionLimits{RunLimits: v1alpha1.RunLimits{Timeout: v1alpha1.NewDuration(10 * time.Minute)}}}
	s.Status = v1alpha1.AgenticSessionStatus{Phase: phase, ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: 1}, RunStatus: v1alpha1.RunStatus{Run: 1}, Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}}}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func stopByUser(s *v1alpha1.AgenticSession) {
	s.Spec.Suspend, s.Status.StoppedReason = true, v1alpha1.StopUser
}

func requestRun(s *v1alpha1.AgenticSession) { s.Spec.Rerun = &v1alpha1.Rerun{ID: "2"} }

func stopForInactivity(s *v1alpha1.AgenticSession) { s.Status.StoppedReason = v1alpha1.StopInactivity }

func addResult(s *v1alpha1.AgenticSession) {
	s.Status.TotalCostUSD = new(v1alpha1.Number("0.12"))
	s.Status.Result = &v1alpha1.SessionResult{
		AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Summary: "Tidied up.", Usage: &apiextensionsv1.JSON{Raw: []byte(`{"tokens":7}`)},
	}
	s.Status.Attempts = []v1alpha1.SessionAttempt{{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}}, Outcome: v1alpha1.RunCompleted, CostUSD: s.Status.TotalCostUSD}}
}

func TestStopSessions(t *testing.T) {
	const tidy = "agenticsession.yardmaster.dev/tidy "
	for title, row := range map[string]struct {
		session *v1alpha1.AgenticSession
		args    string
		code    int
		out     string
		errOut  string
	}{
		"a running session":                {agenticSession("tidy", v1alpha1.SessionRunning), "tidy", exitSuccess, tidy + "stop requested\n", ""},
		"a stopped session":                {agenticSession("tidy", v1alpha1.SessionStopped, stopByUser), "tidy", exitSuccess, tidy + "stop is already requested\n", ""},
		"a session stopped for inactivity": {agenticSession("tidy", v1alpha1.SessionStopped, stopForInactivity), "tidy", exitSuccess, tidy + "stop requested\n", ""},
		"a finished session":               {agenticSession("tidy", v1alpha1.SessionFailed), "tidy", exitSuccess, tidy + "stop requested; its run has finished, and the next run will not start\n", ""},
		"the others if one does not exist": {agenticSession("tidy", v1alpha1.SessionRunning), "no-such tidy", exitError, tidy + "stop requested\n", "error: agenticsessions.yardmaster.dev \"no-such\" not found\n"},
		"a session that has not run yet":   {agenticSession("tidy", v1alpha1.SessionPending), "tidy", exitSuccess, tidy + "stop requested\n", ""},
	} {
		t.Run(title, func(t *testing.T) {
			c := newFakeClient(t, row.session)
			code, out, errOut := runPluginWith(t, "session stop "+row.args, c)
			require.True(t, code == row.code && out == row.out && errOut == row.errOut, "exit code %d, stdout %q, stderr %q", code, out, errOut)
			after := readSession(t, c)
			require.True(t, after.Spec.Suspend, "it is not suspended")
		})
	}
}

func readSession(t *testing.T, c client.Client) *v1alpha1.AgenticSession {
	t.Helper()
	s := &v1alpha1.AgenticSession{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "tidy"}, s))
	return s
}

func TestRestartSession(t *testing.T) {
	const tidy, refused = "agenticsession.yardmaster.dev/tidy ", "error: agenticsession.yardmaster.dev/tidy: cannot restart: "
	ended := func(changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return agenticSession("tidy", v1alpha1.SessionCompleted, changes...)
	}
	for title, row := range map[string]struct {
		session     *v1alpha1.AgenticSession
		run         int32 // the requested run; 0 if nothing is written
		out, errOut string
	}{
		"a session stopped by its user continues":                                                  {agenticSession("tidy", v1alpha1.SessionStopped, stopByUser), 1, tidy + "continues run 1\n", ""},
		"a session being stopped by its user continues":                                            {agenticSession("tidy", v1alpha1.SessionStopping, stopByUser), 1, tidy + "continues run 1\n", ""},
		"an inactive session starts its next run":                                                  {agenticSession("tidy", v1alpha1.SessionStopped, stopForInactivity), 2, tidy + "starts run 2\n", ""},
		"a completed session starts its next run":                                                  {ended(), 2, tidy + "starts run 2\n", ""},
		"a failed session starts its next run":                                                     {agenticSession("tidy", v1alpha1.SessionFailed), 2, tidy + "starts run 2\n", ""},
		"a completed session with a stop request starts its next run":                              {ended(stopByUser), 2, tidy + "starts run 2\n", ""},
		"a completed session whose next run is already requested starts it despite a stop request": {ended(stopByUser, requestRun), 2, tidy + "starts run 2\n", ""},
		"a running session is not restarted":                                                       {agenticSession("tidy", v1alpha1.SessionRunning), 0, "", refused + "it is Running\n"},
		"a session without a status is not restarted":                                              {agenticSession("tidy", ""), 0, "", refused + "it is Pending\n"},
		"a session whose next run is requested is not restarted":                                   {ended(requestRun), 0, "", refused + "run 2 is already requested\n"},
		"a session without time left is not restarted":                                             {ended(func(s *v1alpha1.AgenticSession) { s.Status.ActiveDuration.Duration.Duration = 10 * time.Minute }), 0, "", refused + "it has used 10m0s of 10m0s; raise spec.limits.timeout first\n"},
		"a session without a time limit starts its next run": {ended(func(s *v1alpha1.AgenticSession) {
			s.Status.ActiveDuration.Duration.Duration, s.Spec.Limits.Timeout = 10*time.Minute, v1alpha1.NewDuration(0)
		}), 2, tidy + "starts run 2\n", ""},
		"a session that is being deleted is not restarted": {ended(func(s *v1alpha1.AgenticSession) {
			s.DeletionTimestamp, s.Finalizers = new(metav1.NewTime(testTime)), []string{"a/b"}
		}), 0, "", refused + "it is being deleted\n"},
	} {
		t.Run(title, func(t *testing.T) {
			c := newFakeClient(t, row.session)
			_, out, errOut := runPluginWith(t, "session restart tidy", c)
			require.True(t, out == row.out && errOut == row.errOut, "stdout %q, stderr %q", out, errOut)
			after := readSession(t, c)
			if row.run == 0 {
				require.Equal(t, row.session.Spec, after.Spec)
			} else if agenticsession.IsRerunRequested(after, &after.Status) != (row.run == 2) || after.Spec.Suspend {
				t.Errorf("rerun %v is requested, suspend %t", after.Spec.Rerun, after.Spec.Suspend)
			}
		})
	}
}

func TestSessionResult(t *testing.T) {
	unreadable := func(s *v1alpha1.AgenticSession) {
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunnerReporting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonResultMalformed, Message: "the result is cut off at 4096 bytes"}}
	}
	for title, row := range map[string]struct {
		session     *v1alpha1.AgenticSession
		args        string
		out, errOut string
	}{
		"as text": {agenticSession("tidy", v1alpha1.SessionCompleted, addResult), "", "attempt   run 1, attempt 1\ncost      $0.12\nusage     {\"tokens\":7}\n\nTidied up.\n", ""},
		"as YAML": {agenticSession("tidy", v1alpha1.SessionCompleted, addResult), " -o yaml", "attempt: 1\nrun: 1\nsummary: Tidied up.\nusage:\n  tokens: 7\n", ""},
		"no result yet": {
			agenticSession("tidy", v1alpha1.SessionRunning), "", "", "error: agenticsession.yardmaster.dev/tidy: no result yet: the session is Running\n",
		},
		"an unreadable result after a readable one": {
			agenticSession("tidy", v1alpha1.SessionCompleted, addResult, unreadable), "", "",
			"error: agenticsession.yardmaster.dev/tidy: the result cannot be read: the result is cut off at 4096 bytes\n",
		},
	} {
		t.Run(title, func(t *testing.T) {
			_, out, errOut := runPlugin(t, "session result tidy"+row.args, row.session)
			diff := cmp.Diff(row.out, out)
			require.True(t, diff == "" && errOut == row.errOut, "stderr %q, stdout (-want +got):\n%s", errOut, diff)
		})
	}
}

type sessionUpdate = follow.ObjectUpdate[*v1alpha1.AgenticSession]

func TestWatchingOneSessionEnds(t *testing.T) {
	of := func(phase v1alpha1.SessionPhase, changes ...func(*v1alpha1.AgenticSession)) *v1alpha1.AgenticSession {
		return agenticSession("tidy", phase, changes...)
	}
	requested := of(v1alpha1.SessionCompleted, func(s *v1alpha1.AgenticSession) { s.Generation = 2; requestRun(s) })
	for title, row := range map[string]struct {
		latest  *v1alpha1.AgenticSession
		updates []sessionUpdate
		want    bool
		wantErr error
	}{
		"does not end while it runs":                        {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionRunning)}}, false, nil},
		"ends when it completes":                            {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionCompleted)}}, true, nil},
		"ends when it fails":                                {of(v1alpha1.SessionRunning), []sessionUpdate{{Object: of(v1alpha1.SessionFailed)}}, true, errUnsuccessful},
		"ends when it is stopped":                           {of(v1alpha1.SessionStopping), []sessionUpdate{{Object: of(v1alpha1.SessionStopped)}}, true, errUnsuccessful},
		"does not end before the requested run is observed": {requested, []sessionUpdate{{Object: requested}}, false, nil},
		"does not end for a state before the request":       {requested, []sessionUpdate{{Object: of(v1alpha1.SessionCompleted)}}, false, nil},
	} {
		t.Run(title, func(t *testing.T) {
			v := &objectView[*v1alpha1.AgenticSession]{environment: newTestEnvironment(), kind: agenticSessionKind, latest: row.latest}
			for _, s := range row.updates {
				v.applyUpdate(s)
			}
			wantFinished(t, v, row.want, row.wantErr)
		})
	}
}

func TestAttachExplainsWhyASessionAcceptsNoMessages(t *testing.T) {
	interactive := func(s *v1alpha1.AgenticSession) { s.Spec.Interactive = true }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pair-r1-a1-x", Namespace: "a", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}}
	for want, s := range map[string]*v1alpha1.AgenticSession{
		"is not interactive":                              agenticSession("pair", v1alpha1.SessionRunning),
		"is Pending and has no Pod that accepts messages": agenticSession("pair", v1alpha1.SessionPending, interactive),
	} {
		code, out, errOut := runPluginArgs(t, []string{"session", "attach", "pair"}, newFakeClient(t, s, pod))
		require.True(t, code == exitError && out == "" && strings.Contains(errOut, want), "exit code %d, output %q, stderr %q", code, out, errOut)
	}
}

func TestOnlyAReadyPodOfAnInteractiveSessionAcceptsMessages(t *testing.T) {
	pod := &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 1}, {Name: "session", ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	require.Equal(t, 8080, agenticsession.InteractivePort(pod))
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	require.Equal(t, 0, agenticsession.InteractivePort(pod))
}
