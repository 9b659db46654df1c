package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// failedSequence returns a SequentialJob whose step load failed a minute before testTime.
func failedSequence(name string) *v1alpha1.SequentialJob {
	sj := testbuilder.SequentialJob(name, "a").Step("extract").Step("load").Obj()
	sj.CreationTimestamp = metav1.NewTime(testTime.Add(-time.Hour))
	started, finished := metav1.NewTime(testTime.Add(-2*time.Minute)), metav1.NewTime(testTime.Add(-time.Minute))
	sj.Status = v1alpha1.SequentialJobStatus{
		Phase: v1alpha1.PhaseFailed, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: &started, CompletionTime: &finished}},
		Steps: []v1alpha1.StepStatus{
			{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}}, {Name: "load", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}},
		},
	}
	return sj
}

func TestSequenceListIsOrderedByNamespaceAndName(t *testing.T) {
	other := failedSequence("audit")
	other.Namespace = "b"
	code, out, _ := runPlugin(t, "seq list -A", failedSequence("etl"), other, failedSequence("backup"))
	want := `NAMESPACE   NAME     STATUS   REASON   STEPS   STEP      TIME   AGE
a           backup   Failed            ✔✘                1m0s   60m
a           etl      Failed            ✔✘                1m0s   60m
b           audit    Failed            ✔✘                1m0s   60m
`
	if diff := cmp.Diff(want, out); diff != "" || code != exitSuccess {
		t.Errorf("exit code %d, list (-want +got):\n%s", code, diff)
	}
}

func TestLogsRejectAnUnknownStep(t *testing.T) {
	code, _, errOut := runPlugin(t, "seq logs etl --step=transform", failedSequence("etl"))
	if code != exitError || errOut != "error: invalid --step \"transform\": must be one of extract, load\n" {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
}

func TestRerunSequence(t *testing.T) {
	running := failedSequence("etl")
	running.Status.CompletionTime, running.Status.Phase = nil, v1alpha1.PhaseRunning
	deleted := failedSequence("etl")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{v1alpha1.SequentialJobFinalizer}, new(metav1.NewTime(testTime))
	pending := failedSequence("etl")
	pending.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}, From: v1alpha1.RerunFromStart}
	suspended := failedSequence("etl")
	suspended.Spec.Suspend = true
	repeated := failedSequence("etl")
	repeated.Status.RerunID = "2"
	repeated.Spec.Rerun = &v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "2"}}

	const refused = "error: sequentialjob.yardmaster.dev/etl: cannot rerun"
	for name, row := range map[string]struct {
		sj     *v1alpha1.SequentialJob
		args   string
		from   string // in the written request; empty if nothing is written
		out    string
		errOut string
	}{
		"from the failed step":                   {failedSequence("etl"), "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id 7\n", ""},
		"from the start":                         {failedSequence("etl"), "--id=7 --from=Start", "Start", "sequentialjob.yardmaster.dev/etl reruns from Start: run 2, id 7\n", ""},
		"from a step":                            {failedSequence("etl"), "--id=7 --from=load", "load", "sequentialjob.yardmaster.dev/etl reruns from load: run 2, id 7\n", ""},
		"a suspended SequentialJob waits":        {suspended, "--id=7", "Failed", "sequentialjob.yardmaster.dev/etl reruns from Failed: run 2, id 7\n", "sequentialjob.yardmaster.dev/etl is suspended: the rerun starts when it is resumed\n"},
		"no rerun while it runs":                 {running, "", "", "", refused + ": its run has not finished, it is Running\n"},
		"no rerun while it is being deleted":     {deleted, "", "", "", refused + ": it is being deleted\n"},
		"no rerun while another is pending":      {pending, "", "", "", refused + ": rerun \"2\" is already requested\n"},
		"no rerun with the id of the last rerun": {repeated, "--id=2", "", "", refused + ": the last rerun had the id \"2\"; choose another with --id\n"},
		"no rerun from an unknown step":          {failedSequence("etl"), "--from=transform", "", "", refused + " from step \"transform\": no step without finally has this name\n"},
		"no rerun from Failed in lower case":     {failedSequence("etl"), "--from=failed", "", "", refused + " from step \"failed\": no step without finally has this name\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFakeClient(t, row.sj)
			_, out, errOut := runPluginWith(t, "seq rerun etl "+row.args, c)
			require.True(t, out == row.out && errOut == row.errOut, "stdout %q, stderr %q", out, errOut)
			after := &v1alpha1.SequentialJob{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(row.sj), after))
			if row.from == "" {
				require.Equal(t, row.sj.Spec, after.Spec)
			} else if diff := cmp.Diff(&v1alpha1.SequenceRerun{Rerun: v1alpha1.Rerun{ID: "7"}, From: row.from}, after.Spec.Rerun); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGeneratedRerunIDsAreUnique(t *testing.T) {
	one, two := newRequestID(testTime), newRequestID(testTime)
	require.True(t, one != two && strings.HasPrefix(one, "20260301-120000-") && len(one) <= 63, "ids %q and %q", one, two)
}

// waitingSequence returns a SequentialJob whose step load waits for an approval.
func waitingSequence() *v1alpha1.SequentialJob {
	sj := failedSequence("etl")
	sj.Status.Phase, sj.Status.CompletionTime = v1alpha1.PhaseSuspended, nil
	sj.Status.ObservedGeneration = sj.Generation
	sj.Status.Approval = &v1alpha1.SequenceApproval{UID: sj.UID, Run: 1, Step: "load", Hash: "abc"}
	sj.Status.Steps[1] = v1alpha1.StepStatus{Name: "load", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired}}}
	return sj
}

// newClientOf returns a client of a user. The fake client does not know who asks.
func newClientOf(t *testing.T, user string, objects ...client.Object) client.WithWatch {
	t.Helper()
	return interceptor.NewClient(newFakeClient(t, objects...), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if review, isReview := object.(*authenticationv1.SelfSubjectReview); isReview {
				review.Status.UserInfo.Username = user
				return nil
			}
			return c.Create(ctx, object, options...)
		},
	})
}

func TestApproveShowsAndBindsTheContent(t *testing.T) {
	sj := waitingSequence()
	sj.UID, sj.Status.Approval.UID = "u", "u"
	sj.Spec.Containers[1].Image, sj.Spec.Containers[1].Command = "app:1", []string{"load", "all\x1b[31m"}
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "VERSION", Value: "1.3"}}
	sj.Status.Parameters = sj.Spec.Parameters
	c := newClientOf(t, "ada", sj)
	code, out, errOut := runPluginWith(t, "seq approve etl -p VERSION=1.4 --hash=abc", c)
	want := "step:       load\nimage:      app:1\ncommand:    [\"load\" \"all\\x1b[31m\"]\nparameter:  VERSION=1.4\nhash:       abc\n" +
		"sequentialjob.yardmaster.dev/etl: step load of run 1 approved by ada\n"
	require.True(t, code == exitSuccess && out == want, "exit code %d, stdout %q, want %q, stderr %q", code, out, want, errOut)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "etl"}, sj))
	approval := `{"uid":"u","run":1,"step":"load","hash":"abc","parameters":[{"name":"VERSION","value":"1.4"}]}`
	if got := sj.Annotations; got[v1alpha1.AnnotationApproval] != approval || got[v1alpha1.AnnotationApprovedBy] != "ada" {
		t.Errorf("annotations %s", got)
	}
}

func TestApproveWritesNothingIfTheStepDoesNotWait(t *testing.T) {
	changed := waitingSequence()
	changed.Generation = changed.Status.ObservedGeneration + 1
	for args, test := range map[string]struct {
		sj   *v1alpha1.SequentialJob
		want string
	}{
		"seq approve etl":                {failedSequence("etl"), "no step waits for an approval"},
		"seq approve etl --step=extract": {waitingSequence(), `step "load" waits for an approval`},
		"seq approve etl --hash=def":     {waitingSequence(), "its content has changed: its hash is abc"},
		"seq approve etl --step=load":    {changed, "the operator has not observed the last change"},
		"seq approve etl -p DAY=1":       {waitingSequence(), `spec.parameters has no "DAY"`},
	} {
		code, _, errOut := runPluginWith(t, args, newClientOf(t, "ada", test.sj))
		require.True(t, code == exitError && strings.Contains(errOut, test.want), "%s: exit code %d, stderr %q", args, code, errOut)
	}
}

func TestRerunSetsParameters(t *testing.T) {
	sj := failedSequence("etl")
	sj.Spec.Parameters = []v1alpha1.Parameter{{Name: "DATE", Value: "2026-01-01"}}
	c := newFakeClient(t, sj)
	if code, _, errOut := runPluginWith(t, "seq rerun etl -p DAY=1", c); code != exitError || !strings.Contains(errOut, `spec.parameters has no "DAY"`) {
		t.Errorf("exit code %d, stderr %q", code, errOut)
	}
	if code, _, errOut := runPluginWith(t, "seq rerun etl -p DATE=2026-01-02", c); code != exitSuccess || !strings.Contains(errOut, "other values of the parameters DATE") {
		t.Fatalf("exit code %d, stderr %q", code, errOut)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
	if got := sj.Spec.Rerun.Parameters; len(got) != 1 || got[0].Value != "2026-01-02" {
		t.Errorf("parameters %+v", got)
	}
}
